"""How the questions of golden files are divided among processes, and put together again."""

import pytest

from deepseek_v32.inference.conformance.golden import load
from golden.questions import DEMO, WIDE, in_order, parts


@pytest.mark.parametrize("name, sizes", [("demo", DEMO), ("wide", WIDE)])
def test_the_parts_are_all_questions(name, sizes):
    """Each group is divided, except reused prompts, which stay with their prompts, and conversations, which are one part."""
    items = load(name).items
    for group in ("score", "decode", "batch"):
        own = [item.name for item in items if item.group == group]
        numbers = [number for of, number in parts(sizes) if of == group]
        assert numbers == list(range(len(own))), group
    assert parts(sizes).count(("chat", 0)) == 1 and len(set(parts(sizes))) == len(parts(sizes))
    reused = [f"reuse-{sizes.decode[number]}-{which}" for number in sizes.reuse for which in ("same", "longer")]
    assert [item.name for item in items if item.group == "reuse"] == reused


@pytest.mark.parametrize("name", ["demo", "wide"])
def test_parts_are_put_into_the_order_in_which_the_probe_asks(name):
    items = load(name).items
    assert in_order(items) == items
    chats_first = [*(item for item in items if item.group == "chat"), *(item for item in items if item.group != "chat")]
    assert in_order(chats_first) == items
