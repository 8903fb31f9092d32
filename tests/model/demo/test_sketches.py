"""Sketches: every form can be written, no frame is in two splits, and questions for what was not told are many."""

import random
from collections import Counter

import pytest

from deepseek_v32.inference.llm import DEMO
from demo_model.dialogues import write
from demo_model.dialogues.plain import joined, sketch_blocks, sketches, topics
from demo_model.dialogues.splits import SPLITS
from demo_model.training import data


@pytest.mark.parametrize("name", sketch_blocks.BLOCKS)
def test_every_form_of_a_block_can_be_written(name):
    rng, block = random.Random(name), sketch_blocks.BLOCKS[name]
    for about in block.subjects:
        for role in block.roles.values():
            known = sketch_blocks.fields(about, v=topics.value(rng, "train", role.kind), o="before")
            forms = [
                form for part in (role.adjuncts, role.clauses, role.changes) for split in SPLITS for form in part[split]
            ]
            for form in (*forms, *role.asks, *role.nouns):
                assert "{" not in form.format_map(known), form
            assert all("{v}" in form for form in forms), role
            assert not any("{v}" in ask or "{o}" in ask for ask in role.asks), role


def test_splits_share_no_frame_and_each_has_some():
    for part in ("adjuncts", "clauses", "changes", "asks_of"):
        of = {
            split: {
                (block.name, role.name, form)
                for block in sketch_blocks.BLOCKS.values()
                for role in block.roles.values()
                for form in getattr(role, part)[split]
            }
            for split in SPLITS
        }
        assert all(of[split] for split in SPLITS), part
        for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
            assert not of[one] & of[other], part
    assert all(sketches.NAMED[split] for split in SPLITS)
    assert len(joined.JOINS["train"]) > 10 and all(joined.JOINS[split] for split in SPLITS)


@pytest.mark.parametrize("split", SPLITS)
def test_a_fifth_of_the_questions_has_no_answer(split):
    kinds: Counter[str] = Counter()
    for seed in range(60):
        conversation = write(f"sketch {seed}", length=1500, split=split, families=("sketches",), functions=0.0)
        kinds.update(turn.kind for turn in conversation.turns)
    refused = kinds["unanswerable"] / (kinds["unanswerable"] + kinds["stated"] + kinds["updated"])
    assert 0.12 < refused < 0.3, kinds
    assert kinds["two hops"] > 20 and kinds["updated"] > 30, kinds


def test_a_conversation_that_cannot_be_written_costs_its_step_alone(monkeypatch):
    """Only that step is lost; otherwise training would wait for its batch for ever."""
    from queue import SimpleQueue

    real, queue = data.batch, SimpleQueue()

    def fails(tokenizer, seed, *args, **options):
        if seed.startswith("7 1") or seed == "7 2":
            raise KeyError("a slot without a value")
        return real(tokenizer, seed, *args, **options)

    monkeypatch.setattr(data, "batch", fails)
    data._work(str(DEMO / "tokenizer.json"), 7, [(0, 256, 1), (1, 256, 1), (2, 256, 1)], queue, [0, 0, 0], {})
    came = [queue.get() for _ in range(3)]
    assert [number for number, ids, _ in came if ids is not None] == [0, 2], "batch 2 is drawn again, with other words"
