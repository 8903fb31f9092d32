"""An independent reader of the generator's messages finds every answer right, and a near miss that was answered wrong."""

from collections import Counter

import pytest

from demo_model.dialogues import FAMILIES, Conversation, typing, write
from support import english
from support.demo_reader import NOT_TOLD, Reader

# In these families the user asks in the words in which he told things.
EXACT = ("near", "lists")
# Answers of each kind in 120 conversations, at the least.
LEAST = {
    "near": {"stated": 350, "updated": 180, "refused": 150, "correction": 40},
    "matters": {"stated": 350, "updated": 200, "refused": 150, "correction": 10},
    "lists": {"stated": 500, "updated": 130, "refused": 120},
    "rows": {"table": 700, "updated": 10, "refused": 140, "counted": 1, "compared": 1},
    "hops": {"two hops": 350, "stated": 200, "refused": 15},
}


@pytest.fixture(autouse=True)
def spelt_right(monkeypatch):
    """The reader reads what is spelt right."""
    monkeypatch.setattr(typing, "hurried", lambda rng, text: text)
    monkeypatch.setattr(typing, "_slip", lambda rng, word: word)


def conversation(family: str, seed: str, split: str) -> Conversation:
    return write(seed, length=1500, split=split, families=(family,), functions=0.0)


def read(family: str, conversation: Conversation) -> Reader:
    return Reader(conversation.messages(), exact=family in EXACT, in_clauses=family == "lists")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("split", ["train", "validation", "test"])
@pytest.mark.parametrize("count", [120, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_reader_of_the_messages_finds_every_answer_right(family, split, count):
    found: Counter[str] = Counter()
    complaints = []
    for seed in range(count):
        reader = read(family, conversation(family, f"read {seed}", split))
        found.update(reader.read)
        complaints += [(seed, complaint) for complaint in reader.complaints]
    # Of many, he misreads some: a statement and its question without a stop between them, or a word that he does not know.
    assert len(complaints) <= found.total() / (80 if family == "rows" else 400), complaints[:9]
    assert all(found[kind] >= number * count / 120 for kind, number in LEAST[family].items()), found


# In tables the reader does not know which column is asked for, when people ask in their own words.
@pytest.mark.parametrize(("family", "least"), [("near", 0.6), ("lists", 0.9), ("rows", 0.5)])
def test_the_reader_judges_a_near_miss_unanswerable(family, least):
    """A question for something that was not told gets the answer of the question that is nearest to it."""
    forged = found = 0
    for seed in range(150):
        made = conversation(family, f"forge {seed}", ("train", "test")[seed % 2])
        for number, turn in enumerate(made.turns):
            before = [each for each in made.turns[:number] if each.kind in ("stated", "updated")]
            if turn.kind == "unanswerable" and before:
                asked = english.roots(turn.user)
                turn.answer = max(before, key=lambda each: len(asked & english.roots(each.user))).answer
                turn.thought = None
                del made.turns[number + 1 :]
                forged += 1
                found += bool(read(family, made).complaints)
                break
    assert forged > 80 and found > least * forged, (found, forged)


def complaints_about(text: str, question: str, answer: str, thought: str = "", **options: bool) -> list[str]:
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
    messages += [{"role": "user", "content": question}]
    messages += [{"role": "assistant", "content": answer, "reasoning_content": thought}]
    return Reader(messages, **options).complaints


CHAT = "My sister lives in Rome. My car is on level 3.\nMy bike is on level 3. I moved the car to level 5."
LINES = "1. call Bo\n2. pay rent\n3. buy stamps"
LISTED = "On the farm: 17 goats, plus six geese. Ana, the lamp and Bo, the cake."
PRICES = "the price list\nitem,size,price\ncap,M,3\ncap,L,4\nhat,M,9"
PLAN = "shift plan\nday,shift,name\nMon,early,Pia\nTue,late,Ugo\nWed,split,Ren"
SETTINGS = '{"host": "db-3", "port": 5433}'
SHARED = "Ana shares an office with Raj. Raj sits in room 5."
STEPS = "First: Ana shares an office with Raj. Then: Raj sits in room 5."


@pytest.mark.parametrize(
    ("text", "question", "answer", "complaint"),
    [
        (CHAT, "Which level is my car on?", "5. You said: I moved the car to level 5. Before: 3.", ""),
        (CHAT, "Which level is my car on?", "5. You said: I moved it to level 5.", "never said"),
        (CHAT, "Which level is my car on?", "4. You said: I moved the car to level 5.", "not in the quote"),
        (CHAT, "Which level is my car on?", "5. You said: I moved the car to level 5. Before: 9.", "before was never said"),
        (CHAT, "What's the level of my bike?", "Rome. You said: My sister lives in Rome.", "['bik', 'level'] is asked for"),
        (CHAT, "Which level is my truck on?", "3. You said: My bike is on level 3.", "['truck'] is asked for"),
        (CHAT, "Where does my sister live?", NOT_TOLD, ""),  # a place cannot be told by its looks
        (CHAT, "My car is on what level?", NOT_TOLD, "refused, but"),
        ("The mill is on level 3. Make that 5.", "What level is the mill on?", "3. You said: The mill is on level 3.", "missed"),
        (LINES, "What's the second thing?", "pay rent. You said: 2. pay rent", ""),
        (LINES, "What's the last thing?", "buy stamps. You said: 3. buy stamps", ""),
        (LINES, "What's the first thing?", "pay rent. You said: 2. pay rent", "another line"),
        (LISTED, "How many geese?", "six. You said: On the farm: 17 goats, plus six geese.", ""),
        (LISTED, "How many geese?", "17. You said: On the farm: 17 goats, plus six geese.", "another clause"),
        (LISTED, "What did Ana bring?", "the cake. You said: Ana, the lamp and Bo, the cake.", "another clause"),
        (PRICES, "what does the L cap cost?", "4. Your text says: cap,L,4", ""),
        (PRICES, "What is the last item in the price list?", "cap. Your text says: cap,M,3", "not the last row"),
        (PRICES, "how many rows does the price list have?", "2. Your text lists: cap M, cap L.", "the tables have {3} rows"),
        (PRICES, "which item in the price list is the cheapest?", "cap. Your text says: cap,L,4", "not the extreme"),
        (PLAN, "Which shift is Ren on?", "split. Your text says: Wed,split,Ren", ""),
        (PLAN, "Which shift is Ren on?", "late. Your text says: Tue,late,Ugo", "says nothing of ['ren']"),
        (SETTINGS, "Which port?", f"5433. Your text says: {SETTINGS}", ""),
        (SETTINGS, "Which port?", f"db-3. Your text says: {SETTINGS}", "is asked for"),
    ],
)  # fmt: skip
def test_the_reader_finds_what_is_wrong(text, question, answer, complaint):
    found = complaints_about(text, question, answer, in_clauses=text == LISTED)
    assert complaint in found[0] if complaint else not found, found


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("room 5. You said: Raj sits in room 5.", ""),
        ("room 6. You said: Raj sits in room 5.", "not in the quote"),
        ("room 5. You said: Raj sits in room 5!", "never said"),
    ],
)
def test_the_reader_follows_what_two_have_in_common(answer, complaint):
    found = complaints_about(SHARED, "Where does Ana sit?", answer, STEPS, exact=False)
    assert complaint in found[0] if complaint else not found, found
    assert complaints_about(SHARED, "Where does Tom sit, or Tom's cat?", answer, STEPS, exact=False)
