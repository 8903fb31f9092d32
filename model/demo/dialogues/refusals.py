"""Questions about what was not said; most of them resemble what was."""

from . import chains, manners
from .memory import Memory
from .phrases import Question
from .splits import pick
from .turns import REFUSAL, Piece, Turn


def refuse(memory: Memory, before: str, thinks: bool) -> Turn | None:
    """A question about something that was not said; most often it resembles what was."""
    if thinks and memory.rng.random() < 0.5 and (turn := chains.refuse(memory, before)):
        return turn
    for _ in range(20):
        question = _draw(memory)
        if question is None or any(name in memory.taken for name in (question.signature, *question.aliases)):
            continue
        text = memory.join(before, memory.phrase_question(question))
        thought: list[Piece] | None = [("Nothing was said about that.", REFUSAL)] if thinks else None
        return Turn(text, [(manners.NOT_TOLD, REFUSAL)], "unanswerable", manners.NOT_TOLD, thought)
    return None


def _draw(memory: Memory) -> Question | None:
    rng = memory.rng
    if memory.missing and rng.random() < 0.5:
        return pick(rng, memory.missing)
    if rng.random() < 0.08 and (chain := chains.draw(memory, register=False)):
        names = (*chain.first.questions[0].aliases, *chain.second.questions[0].aliases)
        return Question(chain.question.lower(), "", [chain.question], [], [], [], names)
    fact = memory.related() if memory.known and rng.random() < 0.75 else memory.grammar.fact()
    return pick(rng, fact.questions) if fact is not None and memory.free(fact) else None
