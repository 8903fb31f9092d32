"""Questions about what was not said; most of them resemble what was."""

import re

from . import chains, manners
from .memory import Memory
from .phrases import Question
from .splits import FUNCTION_WORDS, pick
from .turns import REFUSAL, Piece, Turn


def refuse(memory: Memory, before: str, thinks: bool) -> Turn | None:
    """A question about something that was not said; most often it resembles what was."""
    if thinks and memory.rng.random() < 0.5 and (turn := chains.refuse(memory, before)):
        return turn
    for _ in range(20):
        question = _draw(memory)
        if question is None or any(name in memory.taken for name in (question.signature, *question.aliases)):
            continue
        asked = memory.phrase_question(question)
        if memory.strict and seems_told(memory, before, asked):
            continue
        text = memory.join(before, asked)
        thought: list[Piece] | None = [("Nothing was said about that.", REFUSAL)] if thinks else None
        return Turn(text, [(manners.NOT_TOLD, REFUSAL)], "unanswerable", manners.NOT_TOLD, thought)
    return None


_SMALL = FUNCTION_WORDS | set(
    "me my our tell know remember please say give need want repeat let show find look could would should remind recall again if any idea "
    "mention told mind happen exactly check note noted help wondering wonder forgot looking able sure just not actually".split()
)


def stems(text: str) -> set[str]:
    """The words that carry a text's meaning, without their endings."""
    text = text.lower().replace("'s", "").replace("favorite", "favourite").replace("color", "colour")
    return {word[:5] for word in re.findall(r"[a-z]+|\d+", text) if word not in _SMALL}


def seems_told(memory: Memory, before: str, asked: str) -> bool:
    """Whether one sentence has all words of the question: somebody could take it for the answer."""
    if re.search(r"(?i)\b(where|who|whose|how|whom)", asked):
        return False  # the same words do not say where, who or how
    words = stems(asked) - {"when"}
    sentences = [known.sentence for known in memory.known.values()] + [before]
    if re.search(r"(?i)\bwhen", asked):
        sentences = [
            sentence
            for sentence in sentences
            if re.search(r"(?i)\d|day\b|\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)", sentence)
        ]
    return any(words <= stems(sentence) for sentence in sentences)


def _draw(memory: Memory) -> Question | None:
    rng = memory.rng
    if memory.missing and rng.random() < 0.5:
        return pick(rng, memory.missing)
    if rng.random() < 0.08 and (chain := chains.draw(memory, register=False)):
        names = (*chain.first.questions[0].aliases, *chain.second.questions[0].aliases)
        return Question(chain.question.lower(), "", [chain.question], [], [], [], names)
    fact = memory.related() if memory.known and rng.random() < 0.75 else memory.grammar.fact()
    return pick(rng, fact.questions) if fact is not None and memory.free(fact) else None
