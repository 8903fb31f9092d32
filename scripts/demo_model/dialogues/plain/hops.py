"""Questions of two steps in plain words: "My landlady is Petra Novak. Petra's number is 555-0182. What is my landlady's number?"

A line of texts/hops.txt: topic of the second fact | descriptions | statements | questions. {d} is a description, {ds} its possessive,
{b} what it names, {p} somebody. The second fact, and the question about it by the description, are of texts/topics.txt; it may
call a person by the first name, or by a pronoun where it follows at once.
"""

import re

from .. import chains, names, texts
from ..chains import chain_names
from ..phrases import Fact, Phrase, Question, capital
from ..splits import SPLITS, pick, split_of
from ..turns import Chain
from . import topics
from .stories import Story
from .topics import Subject, Topic

_FEMALE = re.compile(r"\b(landlady|wife|sister|mother|daughter|girlfriend|chairwoman)\b")
_MALE = re.compile(r"\b(husband|brother|boyfriend)\b")
_Link = tuple[Topic, list[str], list[str], list[str]]


def _parse() -> dict[str, list[_Link]]:
    links: dict[str, list[_Link]] = {split: [] for split in SPLITS}
    for line in texts.read("hops").strip().splitlines():
        name, *forms = (part.strip() for part in line.split("|"))
        descriptions, statements, asks = ([form.strip() for form in part.split(";")] for part in forms)
        for split in SPLITS:
            mine = [form for form in statements if split_of(f"hop {form}") == split]
            if mine and topics.TOPICS[name].statements[split]:
                links[split].append((topics.TOPICS[name], descriptions, mine, asks))
    return links


LINKS = _parse()


def _named(rng, split: str, topic: str) -> str:
    """What a first fact names."""
    word = names.word(rng, split)
    return {
        "person": f"{names.given(rng, split)} {names.surname(rng, split)}" if rng.random() < 0.6 else names.given(rng, split), "pet": names.given(rng, split),
        "car": f"the {pick(rng, ['red', 'blue', 'old', 'white', 'silver', 'green'])} {pick(rng, ['Volvo', 'Fiat', 'van', 'Ford', 'Skoda', 'jeep', word])}", "shop": pick(rng, [word, f"{word}'s", f"the {word}"]),
        "server": f"{pick(rng, ['web', 'db', 'node', 'srv', 'box'])}{pick(rng, ['', '-'])}{1 + int(rng.random() * 60)}", "project": pick(rng, [word, f"project {word}"]),
        "team": pick(rng, [f"the {word}s", word, f"the {word} Club"]), "train": f"{pick(rng, ['the', 'train', 'bus', 'line'])} {1 + int(rng.random() * 900)}",
        "flat": pick(rng, [f"the {word} Inn", f"Hotel {word}", f"the {word}", word]), "party": pick(rng, [f"the {word} Fair", word, f"the {word} Festival"]),
    }[topic]  # fmt: skip


def draw(writer) -> Chain | None:
    """A chain of two facts that can still be told, or None."""
    rng, split, wording = writer.rng, writer.split, writer.wording.split
    topic, descriptions, statements, asks = pick(rng, LINKS[wording])
    somebody = names.given(rng, split)
    described, named = pick(rng, descriptions).format(p=somebody), _named(rng, split, topic.name)
    first_name = named.split()[0] if topic.name == "person" else named
    if any(writer.mentions(Phrase.of(text, "").key) for text in (described, named, first_name)):
        return None
    pronoun = (
        "it"
        if topic.name not in ("person", "pet")
        else "she"
        if _FEMALE.search(described)
        else "he"
        if _MALE.search(described)
        else "he"
        if first_name in topics.HE
        else "she"
        if first_name in topics.SHE
        else pick(rng, ["she", "he"])
    )
    own = described + "'s"
    fill = {"d": described, "ds": own, "b": named}
    direct = [ask.format(**fill) for ask in asks]
    key = Phrase.of(described, "").key
    aliases = tuple(re.sub(r" (the|my|our) ", " ", ask.lower()) for ask in direct)
    one = Question(f"hop {key}", named, direct, [], [described], [], aliases)
    first = Fact(
        capital(pick(rng, statements).format(**fill)),
        [one],
        Phrase(named, named.lower(), "story"),
        None,
        [],
        "",
        "topic hop",
    )
    short = rng.random()
    second_subject = Subject(first_name if short < 0.3 else named, pronoun)
    fitting = [
        s
        for s in topic.statements[wording]
        if not any(a in ("name", "spot") and topic.name in ("pet", "person") for a in topic.told_by(s))
    ]
    if not fitting:
        return None
    told: dict[str, str] = {}
    second = topics.tell(rng, split, wording, topic, second_subject, pick(rng, fitting), told)
    if not second.questions:
        return None
    asked = pick(rng, second.questions)
    name = asked.signature.split(" ")[2].split("|")[0]
    by_description = topics.question(topic, Subject(described, pronoun), name, wording, told)
    second.questions = [asked]
    if short > 0.75:
        sentence = _with_pronoun(second.sentence, second_subject)
        second.sentence = sentence or second.sentence
    if not by_description.direct or not writer.free(first) or not writer.free(second) or named in asked.value:
        return None
    return Chain(first, second, pick(rng, by_description.direct))


def _with_pronoun(sentence: str, subject: Subject) -> str | None:
    """ "Petra Novak's number is 5" as "Her number is 5", where the subject stands at the beginning."""
    they, _, their, _ = topics.PRONOUNS[subject.pronoun]
    rest = sentence.removeprefix(capital(subject.text))
    if rest == sentence or subject.text in rest:
        return None
    return (
        capital(their + rest[2:]) if rest.startswith("'s ") else capital(they + rest) if rest.startswith(" ") else None
    )


def play(writer, draw=draw) -> int:
    """Tell one or two chains, perhaps among other things, and ask for one of them. draw: makes a chain for the writer, or None."""
    rng, story = writer.rng, Story(writer)
    found: list[Chain] = []
    for _ in range(1 + int(rng.random() * 2.5)):
        chain = draw(writer)
        if chain is None or any(chain_names(chain) & chain_names(other) for other in found):
            continue
        found.append(chain)
        pronoun = re.match(r"(She|He|It|Her|His|Its)\b", chain.second.sentence)
        facts = [chain.first, chain.second]
        if not pronoun and rng.random() < 0.3:
            facts.reverse()
        story.say(facts[0].sentence, [(facts[0], "")])
        if not pronoun and rng.random() < 0.5:
            story.send()
        story.say(facts[1].sentence, [(facts[1], "")])
        writer.chains.append(chain)
        writer.subjects |= {fact.questions[0].signature.split("|")[-1].removeprefix("hop ") for fact in facts}
        writer.subjects.add(chain.first.subject.key)
        if rng.random() < 0.4:
            story.send()
    if not found:
        return 0
    if rng.random() < 0.25:
        story.pause()
    asked = 0
    if rng.random() < 0.8 * writer.asks_at_once and (ready := [c for c in chains.ready(writer) if c in found]):
        if story.parts and rng.random() < 0.6:
            story.send()
        before, story.parts = "".join(story.parts).rstrip(), []
        writer.append(chains.ask(writer, pick(rng, ready), before, rng.random() < max(writer.thinking, 0.6)))
        asked = 1
    story.send()
    return asked
