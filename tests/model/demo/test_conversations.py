"""The conversation generator: deterministic, with disjoint splits and answers that are in the text."""

import pytest

from deepseek_v32.model.demo.conversations import UNANSWERABLE, write
from deepseek_v32.model.demo.conversations.phrasing import WORDINGS
from deepseek_v32.model.demo.conversations.relations import RELATIONS
from deepseek_v32.model.demo.conversations.splits import SPLITS, content_words, divide, split_of

SEEDS = range(40)
LISTS = (
    *("noun_statements", "noun_questions", "leads", "tails", "intros", "updates", "ask_leads", "ask_tails"),
    *("indirect", "same_entity", "lists", "two_entities", "appositions"),
)


def stated_values(split: str) -> set[str]:
    return {
        turn.value.strip()
        for seed in SEEDS
        for turn in write(seed, length=4000, split=split, density=0.8).turns
        if turn.kind in ("stated", "updated")
    }


def templates(split: str) -> set[str]:
    """Clause templates of every relation, and each list of frames under its name."""
    wording = WORDINGS[split]
    found = {f"{name}: {t}" for name in LISTS for t in getattr(wording, name)}
    for name, of_relation in (("statement", wording.statements), ("question", wording.questions)):
        found |= {f"{name}: {t}" for ts in of_relation.values() for t in ts}
    return found


def test_same_arguments_same_conversation():
    assert write(7, length=3000, split="validation") == write(7, length=3000, split="validation")
    assert write(7, length=3000, split="validation") != write(8, length=3000, split="validation")


@pytest.mark.parametrize(("one", "other"), [("train", "validation"), ("train", "test"), ("validation", "test")])
def test_splits_share_no_value(one: str, other: str):
    assert not stated_values(one) & stated_values(other)


@pytest.mark.parametrize(("one", "other"), [("train", "validation"), ("train", "test"), ("validation", "test")])
def test_splits_share_no_template(one: str, other: str):
    assert not templates(one) & templates(other)


def test_wording_is_rich():
    relation_templates = sum(len(r.statements) + len(r.questions) for r in RELATIONS)
    frames = len(WORDINGS["train"].noun_statements) * sum(len(r.nouns) for r in RELATIONS)
    assert relation_templates > 1000
    assert frames > 20_000, "clauses that frames and nouns compose"


def test_held_out_templates_use_known_words():
    # A model that knows no other text cannot know a new word, so sentences are held out, not their vocabulary.
    known = set().union(*(content_words(t.split(": ", 1)[-1]) for t in templates("train")))
    known = known.union(*(content_words(noun) for r in RELATIONS for noun in r.nouns))
    unknown = {w for t in templates("test") for w in content_words(t.split(": ", 1)[-1])} - known
    assert len(unknown) <= 4, unknown


def test_divide_needs_three_templates():
    with pytest.raises(ValueError, match="at least 3 templates"):
        divide(["one", "two"])
    assert {split_of(f"name {i}") for i in range(100)} == set(SPLITS)


@pytest.mark.parametrize("wording", ["train", "test"])
def test_answers_stand_in_the_text_and_nothing_else_gives_them(wording: str):
    kinds = set()
    for seed in SEEDS:
        conversation = write(seed, length=5000, split="test", wording=wording)
        for number, turn in enumerate(conversation.turns):
            kinds.add(turn.kind)
            if turn.fact is None:
                assert turn.kind in ("talk", "unanswerable")
                continue
            where, start, end = turn.fact
            sentence = conversation.turns[where].user[start:end]
            assert where <= number, "stated before it is asked"
            assert turn.value.strip() in sentence
            assert turn.assistant.startswith("The ")
            assert turn.assistant.endswith(".")
    assert kinds == {"talk", "stated", "updated", "unanswerable"}


def test_the_last_update_counts():
    for seed in SEEDS:
        conversation = write(seed, length=6000, split="test", wording="train", density=1.0, prefer_updated=1.0)
        for turn in conversation.turns:
            if turn.kind == "updated":
                where, start, end = turn.fact
                assert turn.value.strip() in conversation.turns[where].user[start:end]


def test_filler_states_nothing():
    for seed in SEEDS:
        conversation = write(seed, length=4000, split="test", density=0.0)
        asked = [turn for turn in conversation.turns if turn.value]
        assert asked
        assert all(turn.value.strip() == UNANSWERABLE for turn in asked)


def test_splits_share_no_invented_name():
    def people(split: str) -> set[str]:
        """Words of values that are persons: all of them are invented."""
        found = set()
        for seed in SEEDS:
            for turn in write(seed, length=4000, split=split, density=0.8).turns:
                if (
                    turn.prefix.startswith(("The owner", "The doctor", "The teacher", "The manager", "The neighbour"))
                    and turn.fact
                ):
                    found.update(turn.value.split())
        return found

    assert len(people("test")) > 20
    assert not people("test") & people("train")


def test_messages_end_with_the_question():
    conversation = write(3, length=3000, split="test")
    number = next(i for i, turn in enumerate(conversation.turns) if turn.kind == "stated")
    messages = conversation.messages(until=number)
    assert messages[-1] == {"role": "user", "content": conversation.turns[number].user}
    assert len(conversation.messages()) - len(messages) == 2 * (len(conversation.turns) - number) - 1
