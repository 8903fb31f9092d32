"""Facts as sentences, and the questions that ask for each of their parts.

A `Fact` is composed by grammar: a subject, a verb or an attribute, a value, perhaps adjuncts. For every part that can be asked
for it knows a *signature*: the question without its wording. Two facts whose questions could be confused share a signature, so
that a conversation never asks a question that has two answers.
"""

from .attributes import Attributes
from .phrases import Fact
from .scenes import Scenes
from .situations import Situations
from .tasks import Tasks
from .verbs import Verbs


class Grammar(Attributes, Verbs, Situations, Tasks, Scenes):
    """Draws facts of every family."""

    def fact(self) -> Fact:
        """A fact of any family."""
        if self.rng.random() < 0.35:
            return self.scene()
        draw = self.rng.random()
        if draw < 0.23:
            return self.attribute()
        if draw < 0.5:
            return self.predicate()
        if draw < 0.61:
            return self.location()
        if draw < 0.71:
            return self.action()
        if draw < 0.8:
            return self.appointment()
        if draw < 0.85:
            return self.existence()
        return self.task() if draw < 0.9 else self.identity()
