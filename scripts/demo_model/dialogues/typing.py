"""How questions are typed: with leads, abbreviations, slips, without capitals."""

import re
from itertools import pairwise

from .splits import SPLITS, Forms, own, pick, split_of
from .texts import sections
from .values import capital


def _divided(name: str, forms: tuple[str, ...]) -> Forms:
    """All of a section's forms by split."""
    return {split: tuple(form for form in forms if split_of(f"{name} {form}") == split) for split in SPLITS}


FRAMES = {name: _divided(name, forms) for name, forms in sections("frames").items()}
_CONTRACTIONS = {
    "what is ": "whats ", "what's ": "whats ", "where is ": "wheres ", "where's ": "wheres ", "who is ": "whos ", "who's ": "whos ", "when is ": "whens ", "when's ": "whens ", "how is ": "hows ",
    "what are ": "what r ",
}  # fmt: skip
_WRITTEN = dict(
    number="no/nr/num", password="pw/pwd/pass", appointment="appt/app", address="addr", birthday="bday", tomorrow="tmrw", you="u", are="r", please="pls/plz",
    phone="tel/ph", meeting="mtg", people="ppl", temperature="temp", and_="&/n", apartment="apt", doctor="doc/dr", minutes="min", information="info",
    what="wat/wht", where="wher/whr", thanks="thx", tonight="2nite", for_="4/fr", favourite="fav/favorite", department="dept", reservation="resv",
    monday="mon", tuesday="tue/tues", wednesday="wed", thursday="thu/thurs", friday="fri", saturday="sat", sunday="sun", the="teh", about="abt", because="bc",
    when="wen/whn", which="wich", your="ur", street="st", room="rm", with_="w/", without="w/o", question="q",
)  # fmt: skip
_SHORT = {word.rstrip("_"): tuple(forms.split("/")) for word, forms in _WRITTEN.items()}
_SMALL = re.compile(r"\b(is|are|the|does|do|did|my|a)\b ", re.IGNORECASE)
_KEYS = {a: b for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm") for a, b in pairwise(row)}
_AUXILIARIES = {"is": "was", "are": "were", "do": "did", "does": "did", "am": "was", "what's": "what was", "where's": "where was", "who's": "who was", "can": "could"}  # fmt: skip
_AUXILIARY = re.compile(rf"\b({'|'.join(_AUXILIARIES)})\b")


def in_the_past(question: str) -> str | None:
    """ "where does Anna live" as "where did Anna live"; None if it has no auxiliary verb that would change."""
    head = " ".join(question.split(" ", 4)[:4])
    match = _AUXILIARY.search(head)
    if match is None:
        return question if re.search(r"\b(did|was|were)\b", head) else None
    return question[: match.start()] + _AUXILIARIES[match[1]] + question[match.end() :]


def _slip(rng, word: str) -> str:
    """One letter left out, doubled, exchanged with its neighbour, or with the key next to it; the first one stays."""
    at = 1 + int(rng.random() * (len(word) - 1))
    style = rng.random()
    if style < 0.3:
        return word[:at] + word[at + 1 :]
    if style < 0.5:
        return word[:at] + word[at] + word[at:]
    if style < 0.8:
        return word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :] if at > 1 else word + word[-1]
    return word[:at] + _KEYS.get(word[at], word[at]) + word[at + 1 :]


def hurried(rng, text: str) -> str:
    """The question with one or two marks of haste. Words with a capital inside the text, digits and invented names stay."""
    words = text.split(" ")
    style = rng.random()
    if style < 0.45:
        able = [n for n, word in enumerate(words) if word.lower().rstrip("?.,") in _SHORT]
        for n in able[: 1 + int(rng.random() * 2)]:
            bare = words[n].rstrip("?.,")
            words[n] = pick(rng, _SHORT[bare.lower()]) + words[n][len(bare) :]
        text = " ".join(words)
    elif style < 0.65:
        text = _SMALL.sub("", text, count=1 + int(rng.random() * 2)) or text
    elif style < 0.9:
        if able := [n for n, word in enumerate(words) if len(word) > 3 and word.islower() and word.isalpha()]:
            n = pick(rng, able)
            words[n] = _slip(rng, words[n])
            text = " ".join(words)
    else:
        text = text.lower() if rng.random() < 0.7 else text.upper()
    return re.sub(r"[?.,]", "", text) if rng.random() < 0.4 else text


class Typist:
    """How one user types. wording: the split of sentence frames and question forms."""

    def __init__(self, rng, wording: str, hasty: bool):
        self.rng, self.wording = rng, wording
        self.hasty = hasty  # abbreviates, and mistypes more
        self.casual = rng.random() < 0.18  # types without capitals and full stops
        self.sloppy = rng.random() < (0.5 if self.casual else 0.1)  # "im" for "I'm"

    def frame(self, name: str) -> str:
        return pick(self.rng, own(FRAMES[name], self.wording))

    def question(self, text: str) -> str:
        rng = self.rng
        if rng.random() < 0.1:
            text = self.frame("ask_leads") + text
        elif rng.random() < 0.1:
            text += self.frame("ask_tails")
        return self.hurry(self.typed(text, "?" if rng.random() < 0.85 else "", 0.8))

    def hurry(self, text: str) -> str:
        return hurried(self.rng, text) if self.hasty and self.rng.random() < 0.4 else text

    def typed(self, text: str, end: str, capitals: float) -> str:
        rng = self.rng
        if rng.random() < (0.2 if self.casual else capitals):
            text = capital(text)
        elif self.casual or rng.random() < 0.2:
            text = text.lower() if rng.random() < 0.3 else text
        if rng.random() < (0.25 if self.casual else 0.04):
            for formal, short in _CONTRACTIONS.items():
                if text[: len(formal)].lower() == formal:
                    text = short + text[len(formal) :]
                    break
        if rng.random() < 0.03 and len(text) > 12:
            words = text.split(" ")
            n = int(rng.random() * len(words))
            if len(words[n]) > 3 and words[n].isalpha():
                words[n] = _slip(rng, words[n])
            text = " ".join(words)
        return text + (end if not text.endswith("?") else "")

    def join(self, before: str, question: str) -> str:
        if not before:
            return question
        if before[-1] in ".!?;" or before.endswith("\n"):
            return f"{before}{pick(self.rng, [' ', ' ', chr(10), chr(10) * 2])}{question}"
        return f"{before}{pick(self.rng, [chr(10), chr(10) * 2, '. ', ', ', ' - ', ' '])}{question}"
