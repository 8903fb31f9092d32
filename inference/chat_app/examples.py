"""Example conversations on the start page: long ones that hide a fact, written by the demo's generator, and short ones."""

from dataclasses import dataclass
from functools import cache

from .conversation import Conversation, Message

# (seed, characters) of the long ones; a CPU prefills some hundreds of the demo's tokens a second. Their last question asks for a
# fact that was stated early and never changed. The split keeps them out of the training data.
LONG = ((7, 5_000), (11, 14_000))


@dataclass(frozen=True)
class Example:
    title: str
    hint: str
    conversation: Conversation  # its last message is the question

    def summary(self) -> dict[str, str]:
        return {"title": self.title, "hint": self.hint}


@cache
def examples(context: int) -> tuple[Example, ...]:
    """The examples that fit a context of `context` tokens."""
    long = [_needle(seed, characters) for seed, characters in LONG if characters / 2 < context]
    return (*(example for example in long if example is not None), _pasted(min(context, 1_500)), _short())


def _needle(seed: int, characters: int) -> Example | None:
    """A long conversation whose last question asks for a fact from its beginning; None without the demo's generator."""
    try:
        from ...model.demo.conversations import write
    except ImportError:
        return None
    for attempt in range(seed, seed + 60):
        written = write(attempt, length=characters, split="test", wording="train", questions=4, unanswerable=0.0)
        question = written.turns[-1]
        if question.kind == "stated" and question.distance > characters * 0.6 and question.user.endswith("?"):
            break
    else:
        return None
    messages = [Message(turn["role"], turn["content"]) for turn in written.messages(until=len(written.turns) - 1)]
    system = ""
    if messages[0].role == "system":
        system = messages.pop(0).content
    length = f"{round(characters / 3, -2):,.0f}"  # the demo's tokens are about 3 characters long
    return Example(
        f"Recall one thing from {length} tokens",
        question.user,
        Conversation(title=question.user, system=system, messages=messages),
    )


def _pasted(tokens: int) -> Example:
    """One long message: the minutes of a meeting, in which a single line matters."""
    topics = (
        "the lift",
        "parking",
        "the canteen",
        "the booking system",
        "the printer",
        "recycling",
        "the newsletter",
        "the badge reader",
    )
    verdicts = (
        "was discussed at length",
        "was postponed",
        "needs another quote",
        "was approved",
        "will be looked at again",
    )
    lines = []
    count = max(20, tokens // 24)
    for i in range(count):
        topic, verdict = topics[i * 5 % len(topics)], verdicts[i * 3 % len(verdicts)]
        lines.append(
            f"Item {i + 1}: {topic} {verdict}; {['Ms Ode', 'Mr Prust', 'Dr Kallin'][i % 3]} takes the minutes."
        )
    lines.insert(count // 3, "By the way, the door code of the Tolmir Archive is 4815.")
    text = "\n".join(lines)
    question = "What is the door code of the Tolmir Archive?"
    return Example(
        "Find one line in a pasted text",
        f"{count + 1} lines of minutes, then: {question}",
        Conversation(messages=[Message("user", f"{text}\n\n{question}")]),
    )


def _short() -> Example:
    return Example(
        "Tell it something, then ask",
        "The opening hours of a bakery",
        Conversation(
            messages=[
                Message("user", "Tarvin Bakery opens at 7:30. My kettle is from Ostrum. When does Tarvin Bakery open?")
            ]
        ),
    )
