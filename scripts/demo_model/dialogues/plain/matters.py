"""Matters: what people tell of home, work, leisure and each other, as `asides` tell remarks, in the words of `matter_cases`."""

import re
from functools import lru_cache

from .. import refusals
from ..turns import Chain
from . import aside_links, asides, hops, remark_links
from .matter_cases import MATTERS
from .matter_words import names_case
from .remark_cases import Case
from .remark_telling import Remarked

# Kinds of which a second value stands beside the first one where nothing says that it replaces it.
_ADDED = frozenset(
    "goods food foods thing animals people dish drink sport language instrument title band medicine".split()
)
stems = lru_cache(10_000)(refusals.stems)  # sentences are read again with each new one
# Of a question: a sentence with all of its other words could be taken for its answer.
_VAGUE = stems("long many much time day say said")


class Matters(asides.Asides):
    """Changes what was told, and asks."""

    pool = MATTERS
    own_share = 0.0

    def beside(self, case: Case) -> list[Case]:
        """None: two people may have written of the same."""
        return []

    def adds(self, of: Remarked, slot: str) -> bool:
        return of.case.slots[slot].kind in _ADDED

    def changes_of(self, of: Remarked, slot: str) -> tuple[str, ...]:
        """Where several were told, only those that say which one they mean: "ended up with a Volvo" would not."""
        forms = super().changes_of(of, slot)
        return forms if len(self.told) == 1 else tuple(form for form in forms if names_case(form, of.case))

    def state(self, told: list[tuple[Remarked, str]], clauses: list[str]) -> bool:
        """As in remarks, unless the sentence speaks of another's subject, or answers what is asked of another one, or the reverse."""
        own = {key for of, _ in told for key in (*of.case.keys, of.about.key)}
        said = " ".join(clauses).lower()
        if any(key in said and re.search(rf"\b{re.escape(key)}\b", said) for key in self.writer.subjects - own):
            return False
        return not self.answers_another(told, said) and super().state(told, clauses)

    def answers_another(self, told: list[tuple[Remarked, str]], said: str) -> bool:
        mine = {f"remark {of.case.name} " for of, _ in told}
        others = [k for k in self.writer.known.values() if not k.question.signature.startswith(tuple(mine))]
        words, sentences = stems(said), [stems(known.sentence) for known in others]
        asked = [stems(ask) for of, slot in told for ask in of.asks(slot, self.wording)]
        if any(ask <= sentence for ask in asked for sentence in sentences):
            return True
        return any(stems(ask) <= words for known in others for ask in known.question.direct)

    def sentences(self) -> list[str]:
        """What was told, and what it replaced."""
        known = list(self.writer.known.values())
        return [each.sentence for one in known for each in (one, one.previous) if each is not None]

    def untold(self, of: Remarked) -> str | None:
        """A question without an answer; no sentence of the conversation has all of its words."""
        for _ in range(4):
            text = super().untold(of)
            if text is not None:
                words = {word for word in stems(text) - _VAGUE if len(word) > 2}
                sentences = ["".join(self.parts), *self.sentences()]
                return None if any(words <= stems(sentence) for sentence in sentences) else text
        return None


def play(writer) -> int:
    """Append matters to the conversation; returns the number of their questions."""
    return asides.play(writer, Matters)


def draw_chain(writer) -> Chain | None:
    """Two facts, the first of which names what the second is about, perhaps beside two others like them."""
    style = writer.rng.random()
    if style < 0.35:
        return aside_links.draw_relation(writer, MATTERS)
    chain = (aside_links if style < 0.7 else remark_links).draw(writer, remark_links.MATTERS_BY_SPLIT)
    return chain if chain and writer.free(chain.first) and writer.free(chain.second) else None


def play_links(writer) -> int:
    """Tell one or two such chains, and ask for one of them."""
    return hops.play(writer, draw_chain)
