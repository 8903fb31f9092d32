"""Which experts are read, when, and which make room: with a reader that the test controls."""

from concurrent.futures import Future
from typing import Any

import pytest
import torch

from deepseek_v32.model.expert_slots import ExpertSlots, Key, PartShape, Slot

EXPERTS = 16


class Reader:
    """Writes an expert's number into its slot. Reads end at once, or when `finish` is called."""

    def __init__(self, later: bool = False) -> None:
        self.later = later
        self.requests: list[tuple[str, Key]] = []
        self.open: list[tuple[Future[None], Slot, Key]] = []

    def read(self, part: str, key: Key, slot: Slot, after: object) -> list[Future[None]]:
        future: Future[None] = Future()
        self.requests.append((part, key))
        self.open.append((future, slot, key))
        if not self.later:
            self.finish()
        return [future]

    def finish(self, error: Exception | None = None) -> None:
        for future, slot, (layer, expert) in self.open:
            slot.weight.fill_(100 * layer + expert)
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        self.open.clear()

    def convert(self, part: str, key: Key, slot: Slot, into: Slot) -> None:
        into.weight.copy_(slot.weight)


def make(
    count: int, used: torch.dtype = torch.float32, later: bool = False, layers: int = 3
) -> tuple[ExpertSlots, Reader]:
    shape = PartShape((2, 3), (1, 1), torch.float32, used)
    reader = Reader(later)
    slots = ExpertSlots(
        {"gate_up_proj": shape, "down_proj": shape}, reader, range(1, 1 + layers), EXPERTS, torch.device("cpu")
    )
    slots.allocate(count)
    return slots, reader


def offsets(experts: set[int]) -> torch.Tensor:
    counts = [int(expert in experts) for expert in range(EXPERTS)]
    return torch.tensor([0, *counts]).cumsum(0).int()


def launches(slots: ExpertSlots, layer: int, experts: set[int], tokens: int = 1) -> dict[str, list[list[int]]]:
    """Run a step of a layer: the experts of each launch, after a check that every expert's own weights are there."""
    found: dict[str, list[list[int]]] = {}
    parts = slots.request(layer, offsets(experts), tokens)
    for part in ("gate_up_proj", "down_proj"):
        found[part] = []
        for weight, scale, table in parts(part):
            assert scale is None and table is not None
            launched = [expert for expert, slot in enumerate(table.tolist()) if slot >= 0]
            assert all(bool((weight[table[expert]] == 100 * layer + expert).all()) for expert in launched)
            found[part].append(launched)
        assert sorted(expert for launched in found[part] for expert in launched) == sorted(experts)
    return found


@pytest.mark.parametrize("used", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 2, 5, 16, 48])
def test_any_steps_in_any_number_of_slots(count, used):
    slots, reader = make(count, used)
    generator = torch.Generator().manual_seed(count)
    for step in range(60):
        experts = set(torch.randperm(EXPERTS, generator=generator)[: 1 + step % EXPERTS].tolist())
        launches(slots, 1 + step % 3, experts, tokens=1 if step % 4 else 1000)
        assert all(len(part.held) <= count for part in slots._parts.values())
    if count == 48:  # every expert was read once
        assert len(reader.requests) == len(set(reader.requests))


def test_a_step_without_rows_has_one_launch():
    slots, _ = make(2)
    assert launches(slots, 1, set()) == {"gate_up_proj": [[]], "down_proj": [[]]}


def test_the_least_recently_used_expert_makes_room():
    slots, reader = make(3)
    for experts in ({0}, {1}, {2}, {0}, {3}, {0}, {2}):
        launches(slots, 1, experts)
    assert [key for part, key in reader.requests if part == "down_proj"] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert (slots.used, slots.read) == (7, 4)


def test_held_experts_are_used_while_others_are_read():
    slots, reader = make(8)
    launches(slots, 1, {0, 1})
    reader.later = True
    parts = slots.request(1, offsets({0, 1, 2, 3}), 1)
    assert [key for _, key in reader.requests[4:]] == [
        (1, 2),
        (1, 3),
    ] * 2  # both parts are asked for at once, in the order of use
    gate_up = parts("gate_up_proj")
    first = next(iter(gate_up))
    assert first.slots is not None and [int(each) >= 0 for each in first.slots[:4]] == [True, True, False, False]
    reader.finish()


def test_held_experts_are_launched_in_parts():
    """So that the slots of the first can be filled again before the last has been multiplied with."""
    slots, reader = make(48)
    launches(slots, 1, set(range(EXPERTS)), 1000)
    assert [len(each) for each in launches(slots, 1, set(range(EXPERTS)), 1000)["gate_up_proj"]] == [8, 8]
    assert len(reader.requests) == 4 * EXPERTS  # and the next layer, once


def test_a_long_prompt_leaves_the_experts_of_answers():
    slots, reader = make(24)
    for layer in (1, 2, 3):
        launches(slots, layer, {0, 1, 2})
    for _ in range(2):
        for layer in (1, 2, 3):
            launches(slots, layer, set(range(EXPERTS)), tokens=1000)
    before = len(reader.requests)
    for layer in (1, 2, 3):
        launches(slots, layer, {0, 1, 2})
    assert len(reader.requests) == before


def test_a_long_prompt_asks_for_the_next_layer():
    slots, reader = make(48)
    slots.begin(64)
    assert reader.requests == []
    layers = [
        [(part, (layer, expert)) for part in ("gate_up_proj", "down_proj") for expert in range(EXPERTS)]
        for layer in (1, 2, 3)
    ]
    slots.begin(1000)  # at the start of a step, for the first layer
    assert reader.requests == layers[0]
    slots.request(1, offsets(set(range(EXPERTS))), 1000)
    assert reader.requests == layers[0] + layers[1]
    slots.request(3, offsets(set(range(EXPERTS))), 1000)
    assert reader.requests[-1] == ("down_proj", (3, EXPERTS - 1))  # it is the last layer


def test_a_long_prompt_reads_in_the_order_of_use_while_it_multiplies():
    """In too few slots for a layer, one half is read while the other is used, and nothing of the next layer comes first."""
    slots, reader = make(8)
    parts = slots.request(1, offsets(set(range(EXPERTS))), 1000)
    assert reader.requests == [(part, (1, expert)) for part in ("gate_up_proj", "down_proj") for expert in range(8)]
    for part in ("gate_up_proj", "down_proj"):
        for number, (_, _, table) in enumerate(parts(part)):
            assert table is not None and int((table >= 0).sum()) == 4
            asked = [key for name, key in reader.requests if name == part and key[0] == 1]
            assert len(asked) == min(4 * number + 8, EXPERTS)
    assert [key[0] for _, key in reader.requests] == [1] * 2 * EXPERTS + [2] * (8 + 4)


@pytest.mark.parametrize("count", [1, 4, 48])
def test_a_failed_read_frees_its_slot_and_is_tried_again(count):
    slots, reader = make(count, later=True)
    parts = slots.request(1, offsets({0, 1}), 1)
    reader.finish(OSError("disk"))
    with pytest.raises(OSError, match="disk"):
        list(parts("gate_up_proj"))
    reader.later = False
    launches(slots, 1, {0, 1})
    launches(slots, 2, set(range(EXPERTS)), 1000)


def test_an_interrupted_step_leaves_the_slots_usable():
    slots, reader = make(2, later=True)
    parts: Any = slots.request(1, offsets({0, 1}), 1)
    reader.finish()
    iterator = iter(parts("gate_up_proj"))
    next(iterator)
    iterator.close()  # as Ctrl-C does
    reader.later = False
    launches(slots, 2, {4, 5, 6})


def test_an_expert_whose_read_was_not_begun_is_not_held(monkeypatch):
    slots, reader = make(2)
    launches(slots, 1, {0, 1})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(reader, "read", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        slots.request(1, offsets({4, 5}), 1)
    launches(slots, 1, {4, 5, 6})


def test_measuring_reads_nothing():
    slots, reader = make(1)
    with slots.measuring():
        parts = slots.request(1, offsets({0, 5}), 1000)
        (part,) = parts("down_proj")
    assert part.slots is not None and part.slots.tolist() == [0] * EXPERTS and not reader.requests
