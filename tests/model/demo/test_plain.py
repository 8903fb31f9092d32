"""The generator's plain families: an independent reader of the messages finds every answer right, and no wording in two splits."""

import re
from collections import Counter

import pytest

from demo_model.dialogues import BASE, FAMILIES, write
from demo_model.dialogues.memory import Memory
from demo_model.dialogues.plain import grids, hasty, hops, topics
from demo_model.dialogues.splits import SPLITS
from support.demo_reader import NOT_TOLD, Reader


@pytest.mark.parametrize(
    ("families", "least"),
    [
        (("stories",), {"stated": 300, "updated": 200, "refused": 20, "correction": 100}),
        (("hops",), {"two hops": 300, "stated": 100}),
        (("lookups",), {"table": 500, "counted": 50, "compared": 50, "refused": 10}),
        (("sketches",), {"stated": 250, "updated": 60, "refused": 100}),
        (("remarks",), {"stated": 380, "updated": 160, "refused": 90, "two hops": 110, "table": 60, "correction": 25}),
        (("asides",), {"stated": 400, "updated": 160, "refused": 50, "two hops": 110, "correction": 20}),
        (("matters",), {"stated": 500, "updated": 300, "refused": 90, "two hops": 50, "correction": 50}),
        (("stories", "hops", "lookups"), {"stated": 200, "updated": 80, "two hops": 80, "table": 150}),
        (("base", "stories", "hops", "lookups"), {"stated": 300, "updated": 80, "table": 100, "refused": 20}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("count", [120, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_reader_of_the_messages_finds_every_answer_right(monkeypatch, families, least, split, count):
    monkeypatch.setattr(Memory, "mistypes", 0.0)  # the reader reads what is spelt right
    read: Counter[str] = Counter()
    complaints = []
    for seed in range(count):
        conversation = write(f"read {seed}", length=1500, split=split, families=families, functions=0.0)
        reader = Reader(conversation.messages(), "base" not in families, synonyms="matters" in families)
        read.update(reader.read)
        complaints += [(seed, complaint) for complaint in reader.complaints]
    assert not complaints, complaints[:5]
    assert all(read[kind] >= number * count / 150 for kind, number in least.items()), read


CHAT = [
    ("My sister lives in Rome. My car is on level 3.", "Noted."),
    ("I moved it to level 5.", "Noted."),
    ("Which level is my car on?", "5. You said: I moved it to level 5. Before: 3."),
]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (None, ""),
        ("3. You said: My car is on level 3.", "missed"),
        ("5. You said: I moved it to level 6.", "never said"),
        ("4. You said: I moved it to level 5.", "not in the quote"),
        ("5. You said: I moved it to level 5. Before: 9.", "before was never said"),
        ("Rome. You said: My sister lives in Rome.", "names nothing of the question"),
    ],
)
def test_the_reader_finds_what_is_wrong(answer, complaint):
    messages = []
    for asked, said in CHAT:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
    messages[3]["content"] = "Noted."
    if answer:
        messages[-1]["content"] = answer
    if complaint == "missed":
        messages[2]["content"] = "Make that 5."
    found = Reader(messages, stories=True).complaints
    assert (not found) if not complaint else complaint in found[0], found


@pytest.mark.parametrize(
    ("question", "answer", "complaint"),
    [
        ("how much is the red L cap?", "4. Your text says: cap,L,4", ""),
        ("how much is the M cap?", "4. Your text says: cap,L,4", "another row"),
        ("What is the last item in the price list?", "cap. Your text says: cap,M,3", "not the last row"),
        ("how many rows does the price list have?", "2. Your text lists: cap M, cap L.", "the table has 3 rows"),
        ("which item in the price list is the cheapest?", "cap. Your text says: cap,L,4", "not the extreme"),
        ("what does the M cap cost?", NOT_TOLD, ""),
    ],
)
def test_the_reader_reads_tables(question, answer, complaint):
    table = "the price list\nitem,size,price\ncap,M,3\ncap,L,4\nhat,M,9"
    messages = [{"role": "user", "content": table}, {"role": "assistant", "content": "Noted."}]
    messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    found = Reader(messages, stories=True).complaints
    assert (not found) if not complaint else complaint in found[0], found


@pytest.mark.parametrize("split", ["validation", "test"])
def test_each_family_has_wordings_of_its_own_split(split):
    train = {(t.name, s) for t in topics.TOPICS.values() for s in t.statements["train"]}
    mine = {(t.name, s) for t in topics.TOPICS.values() for s in t.statements[split]}
    assert len(mine) > 30 and not mine & train
    asks, changes = (
        [
            {
                (t.name, a.name, form)
                for t in topics.TOPICS.values()
                for a in t.attributes.values()
                for form in getattr(a, name)[of]
            }
            for of in (split, "train")
        ]
        for name in ("asks_of", "changes")
    )
    assert len(asks[0]) > 80 and not asks[0] & asks[1]
    assert len(changes[0]) > 30 and not changes[0] & changes[1]
    linked = [{form for _, _, statements, _ in hops.LINKS[of] for form in statements} for of in (split, "train")]
    assert linked[0] and not linked[0] & linked[1]


def test_families_are_many_and_a_wrong_one_is_refused():
    assert sum(len(t.statements["train"]) for t in topics.TOPICS.values()) > 350
    assert len(topics.TOPICS) > 20 and len(grids.DOMAINS) >= 10
    assert FAMILIES[: len(BASE)] == BASE
    with pytest.raises(ValueError, match=r"families is \['stroies'\]; expected some of"):
        write(1, length=1000, families=("stroies",))


def test_haste_leaves_names_and_numbers():
    import random

    seen = Counter()
    for seed in range(300):
        text = hasty.hurried(random.Random(seed), "What is the phone number of Zorvik in room 4711?")
        seen[text] += 1
        assert "zorvik" in text.lower() and "4711" in text
    assert len(seen) > 40


def test_base_conversations_are_those_that_the_shipped_checkpoint_learned():
    """A sample of texts, fixed when the families came: measurements of the shipped checkpoint stay comparable."""
    one = write("pin 1", length=900, split="test", wording="train", thinking=0.3, functions=0.4, families=BASE)
    assert [turn.user for turn in one.turns][-3:] == PINNED
    assert not any(re.search(r"only the first step|Your text lists", turn.assistant) for turn in one.turns)


PINNED = [
    "How much is the tape order of Kate's Institute?",
    "my train?",
    "What have Ii told you about the pet name for Kuzih?",
]
