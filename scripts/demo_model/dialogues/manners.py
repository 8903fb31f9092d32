"""What people say besides facts: greetings, thanks, questions about the world, arithmetic, other languages, odd input. Honest answers."""

from . import names, values
from .splits import below, pick
from .texts import LISTS, sections

NOT_TOLD = "You have not told me that in this chat."
WORLD = "I know nothing about the world, only what you tell me in this chat."
ARITHMETIC = "I cannot calculate. I only remember what you tell me in this chat."
ENGLISH = "I only understand English, and only what you tell me in this chat."
UNCLEAR = "I did not understand that. Tell me a fact, then ask me about it."
NOTED = "Noted."
READ = "I have read it. Ask me about it."
COUNT = "I can count that with a thought alone. Turn thinking on."
NO_FUNCTION = "I have no function for that."
_SECTIONS = sections("manners")
_TALK = [(head, forms) for head, forms in _SECTIONS.items() if head[0].isupper()]  # an answer, and what it answers
_ASKING = frozenset(LISTS["asking"])
_SCRIPTS = [(0x00C0, 0x017F), (0x0370, 0x03FF), (0x0400, 0x04FF), (0x4E00, 0x9FFF), (0x3040, 0x30FF), (0x0600, 0x06FF), (0x0590, 0x05EA), (0xAC00, 0xD7A0), (0x1F300, 0x1F5FF), (0x21, 0x7E)]  # fmt: skip
_CODE = (
    "def {a}({b}):\n    return {b} + {n}|for (let i = 0; i < {n}; i++) {{ {a}({b}); }}|SELECT {a} FROM {b} WHERE id = {n};|import {a}\n{a}.{b}({n})|<div class=\"{a}\"><p>{b}</p></div>|#include <{a}.h>\nint main() {{ return {n}; }}"
    "|git commit -m \"{a} {b}\"|if {a} > {n}:\n    print({b})|{a} = lambda {b}: {b} * {n}|console.log({a}.{b});|sudo apt install {a}-{b}|Traceback (most recent call last):\n  File \"{a}.py\", line {n}, in {b}|\\frac{{{a}}}{{{b}}} + {n}"
    "|<?xml version=\"1.0\"?><{a}><{b}/></{a}>|{{\"{a}\": [{n}, {n}], \"{b}\": null}}|$ ls -la /{a}/{b}|</{a}>|&{a};&{b};|%{a}%20{b}%3D{n}|0x{n}{a}|[[{a}]]({b})|::{a}::{b}::"
).split("|")  # fmt: skip

_SLOTS = dict(c="countries", t="towns", u="towns", o="objects", j="jobs", f="foods", g="foods", a="animals", l="languages", s="subjects", sp="sports", p="places", n="first_names")  # fmt: skip


def _fill(rng, form: str) -> str:
    if "{" not in form:
        return form
    return form.format(**{slot: pick(rng, LISTS[kind]) for slot, kind in _SLOTS.items()})


def talk(rng, split: str) -> tuple[str, str, bool]:
    """(what is said, the answer, whether it is a question)."""
    draw = rng.random()
    if draw < 0.45:
        answer, forms = pick(rng, _TALK)
        text = _fill(rng, pick(rng, forms))
        return text, answer, text.split()[0].lower() in _ASKING
    if draw < 0.65:
        return _fill(rng, pick(rng, _SECTIONS["world"])), WORLD, True
    if draw < 0.77:
        a, b = below(rng, 10 ** (1 + below(rng, 4))), below(rng, 10 ** (1 + below(rng, 3)))
        if rng.random() < 0.2:
            return pick(rng, _SECTIONS["sums"]).format(a=a, b=b, f="apple"), ARITHMETIC, True
        sum_ = pick(rng, _SECTIONS["operations"]).format(a=a, b=b)
        return pick(rng, _SECTIONS["calculate"]).format(x=sum_), ARITHMETIC, True
    if draw < 0.85:
        return pick(rng, _SECTIONS["foreign"]), ENGLISH, False
    return odd(rng, split), UNCLEAR, False


def _invented(rng, split: str) -> str:
    if rng.random() < 0.5:
        return "".join(pick(rng, names.SYLLABLES) for _ in range(1 + below(rng, 2)))
    return "".join(pick(rng, names.CONSONANTS + names.VOWELS) for _ in range(3 + below(rng, 6)))


def script(rng) -> str:
    """Letters of one alphabet, in words of random length."""
    low, high = pick(rng, _SCRIPTS)
    words = (
        "".join(chr(low + below(rng, high - low)) for _ in range(1 + below(rng, 6))) for _ in range(1 + below(rng, 8))
    )
    return " ".join(words)


def odd(rng, split: str) -> str:
    """Letters at random or of another alphabet, what fingers type first, links, code, the same again and again."""
    style = rng.random()
    if style < 0.15:
        return pick(rng, _SECTIONS["mashed"])
    if style < 0.3:
        return " ".join(_invented(rng, split) for _ in range(1 + below(rng, 4)))
    if style < 0.45:
        return script(rng)
    if style < 0.55:
        link = pick(rng, ["", "", "see ", "look: "]) + values.url(rng, split)
        return link + pick(rng, ["", "", f"?{_invented(rng, split)}={below(rng, 999)}"])
    if style < 0.7:
        fields = {"a": _invented(rng, split), "b": values.word(rng, split), "n": below(rng, 1000)}
        return pick(rng, _CODE).format_map(fields) if rng.random() < 0.9 else "\n".join(pick(rng, _CODE).format_map(fields) for _ in range(3))  # fmt: skip
    if style < 0.9:  # again and again
        word, syllables = values.word(rng, split), _invented(rng, split)
        unit = pick(rng, [f"{word} ", syllables, pick(rng, "abxz01.!?-_=*#/ha"), script(rng)[:3], "the ", "very "])
        return (unit * (5 + int(rng.random() ** 3 * 200)))[:1500].strip() or "."
    if style < 0.95:
        return "".join(chr(33 + below(rng, 94)) for _ in range(4 + int(rng.random() ** 2 * 120)))
    return "".join(pick(rng, "🙂😀🎉🚗🔥❤️👍🐱🌧️☕✅❌") for _ in range(1 + below(rng, 8)))
