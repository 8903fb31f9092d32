"""Example conversations on the start page: plain sentences and questions that a person could have typed."""

from dataclasses import dataclass, replace
from functools import cache

from ...model.demo.sample_chats import MOVING, READ
from .conversation import Conversation, Message


@dataclass(frozen=True)
class Example:
    title: str
    hint: str
    conversation: Conversation  # its last message is the question
    thinking: bool = False  # the question needs two facts, so it is answered after a thought

    def summary(self) -> dict[str, str]:
        """The card: its title, the question, and whether it brings more text than a person would type."""
        is_long = sum(len(message.content) for message in self.conversation.messages) > 1_000
        return {"title": self.title, "hint": self.hint, "brings": "brings a long example" if is_long else ""}


@cache
def examples(context: int) -> tuple[Example, ...]:
    """The examples that fit a context of `context` tokens."""
    short = (_pasted(), _log(), _told())
    if context < 3_000:
        return short
    number = "What is my landlady's phone number?"
    return (
        _asked("Recall one thing from a long chat", "What is the wifi password?"),
        _asked("Ask for what has changed", "When does the removal van come?"),
        replace(_asked("Put two facts together", number, f"{number} It thinks first."), thinking=True),
        *short,
    )


def _asked(title: str, question: str, hint: str = "") -> Example:
    """A question after the long chat of sample_chats.py."""
    said = [Message(role, text) for turn in MOVING for role, text in zip(("user", "assistant"), turn, strict=True)]
    return Example(title, hint or question, Conversation(title=question, messages=[*said, Message("user", question)]))


def _pasted() -> Example:
    """One long message: the minutes of a meeting, in which a single line matters."""
    question = "Who orders the new chairs?"
    text = """Minutes, Tuesday

1. The minutes of last month are accepted without changes. Rosa thanks everyone who stayed to put the tables back.
2. The heating in the big hall. It bangs at night, and the neighbours have written again. The plumber was here twice and \
found air in the pipes both times. If it bangs once more, we ask somebody else.
3. The flea market brought in more than last year, although it rained. There was too much cake and not enough coffee. Two \
boxes of books are left, and nobody wants to carry them home.
4. Chairs. Nine are broken, and four of those have been repaired before. Mending them again costs more than they are worth.
   Daniel orders the new chairs.
5. The choir would like to rehearse on Thursdays, because the drummers practise next door on Wednesdays. The yoga group does \
not mind moving, if it can have the small room with the carpet.
6. The notice board. Half of it is out of date. Whoever pins something on it writes the date on it and takes it down again.
7. The cellar. Somebody has left eleven bags of plaster there, and nobody knows why. They are too heavy to carry far, and \
too good to throw away. Whoever needs plaster is welcome to it until the end of the month.
8. The bicycle racks are full again. Bicycles without a note on the saddle go to the school workshop after the holidays.
9. Any other business: the light over the side entrance flickers, the lost umbrellas are in the cupboard, and the mice are back.

Rosa closes the meeting. The next one is after the holidays."""
    return Example(
        "Find one line in a pasted text",
        f"The minutes of a meeting, then: {question}",
        Conversation(messages=[Message("user", f"{text}\n\n{question}")]),
    )


def _log() -> Example:
    """A day's log with one line that is unlike the others."""
    services = ("web", "mail", "search", "billing", "images")
    events = ("request served", "cache refreshed", "session closed", "job finished", "heartbeat", "queue empty")
    times = [f"{i * 31 // 60:02}:{i * 31 % 60:02}:{i * 7 % 60:02}" for i in range(40)]
    lines = [
        f"{time} INFO {services[i * 7 % 5]} {events[i * 5 % 6]} in {20 + i * 37 % 300} ms"
        for i, time in enumerate(times)
    ]
    lines.insert(14, "06:55:12 WARN The door was opened by Aylin Demir.")
    question = "Who opened the door?"
    said = [Message("user", "\n".join(lines)), Message("assistant", "I have read it. Ask me about it.")]
    hint = f"{len(lines)} lines, then: {question}"
    return Example("Search a log", hint, Conversation(title=question, messages=[*said, Message("user", question)]))


def _told() -> Example:
    text = "The meeting is on Tuesday at 14:30 in room 204. Mr Okafor brings the plans. Where is the meeting?"
    return Example("Tell it something, then ask", text, Conversation(messages=[Message("user", text)]))


def page_of_text() -> list[Message]:
    """A message of some 600 tokens and its answer, to make a short conversation long enough for a selection."""
    texts = [text for text, answer in MOVING if answer == READ][-2:]
    return [Message("user", "\n\n".join(texts)), Message("assistant", READ, finish="stop")]
