"""Recorded selections of decode steps stay right, whenever they are read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.config import CacheBudget
from deepseek_v32.inference.engine.fault import Fault
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running import runner, selection
from deepseek_v32.inference.engine.running.selection import (
    DecodeRecord,
    DecodeRecords,
    SelectionRecorder,
    most_bytes,
    row_bytes,
)
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.engine.sizing import record_bytes
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.recording import Recording
from deepseek_v32.inference.token_selection import TokenSelection
from deepseek_v32.model.checkpoint.config_json import read_config
from support.tiny import tiny_checkpoint

LAYERS, TOPK = 2, 4
CPU = torch.device("cpu")


def decodes(rows: int) -> Batch:
    requests = [Request(id, (1,) * 10, SamplingParams(), max_tokens=9, seed=0, inspect=id != 1) for id in range(rows)]
    for request in requests:
        request.cache.computed = 9
    return Batch.of([(request, 1) for request in requests])


def launch(record: DecodeRecord, number: int) -> SelectionRecorder:
    """A step in which row b selects number, number + 1, … + 100 b in every layer and as the bits of every score."""
    rows, _, _, topk = record.device.shape
    values = number + torch.arange(topk) + 100 * torch.arange(rows)[:, None, None, None]
    place = record.next_place()
    record.device.copy_(values.expand(record.device.shape))
    record.copy_to_host(torch.tensor([place]))
    recorder = SelectionRecorder(decodes(rows))
    recorder.decodes(record.at(place))
    return recorder


def read(recorder: SelectionRecorder) -> list[TokenSelection]:
    """The selections of a step's requests that ask for them."""
    return [found for request in list(recorder._rows) if (found := recorder.of(request)) is not None]


def is_step(found: TokenSelection, number: int, row: int) -> bool:
    expected = (number + 100 * row + np.arange(TOPK)).tolist()
    return all(
        found.layers[layer].tolist() == expected and found.scores[layer].view(np.int32).tolist() == expected
        for layer in range(LAYERS)
    )


def test_a_step_is_the_same_whenever_it_is_read() -> None:
    """A step reads the same after the next one was launched, as in the engine."""
    record, taken = DecodeRecord.separate(3, LAYERS, TOPK, CPU), []
    before = launch(record, 0)
    for number in range(1, 8):
        following = launch(record, number)
        taken.append(read(before))
        if number % 2:
            assert is_step(taken[-1][0], number - 1, 0)
        before = following
    for number, found in enumerate(taken):
        assert len(found) == 2 and is_step(found[0], number, 0) and is_step(found[1], number, 2)


def test_steps_of_two_sizes_share_their_places() -> None:
    """They run in turns."""
    whole = DecodeRecord.separate(3, LAYERS, TOPK, CPU)
    part, taken = DecodeRecord(whole.device[:2], whole._host), []
    before = launch(whole, 0)
    for number in range(1, 6):
        following = launch((whole, part)[number % 2], number)
        taken.append(read(before))
        before = following
    for number, found in enumerate(taken):
        assert all(is_step(one, number, row) for one, row in zip(found, (0, 2), strict=False))


def test_large_steps_share_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share all of the device's memory. Pinned memory has the largest recorded step's size, as a power of two."""
    monkeypatch.setattr(selection, "_SHARED_BYTES", 2 * row_bytes(LAYERS, TOPK))
    records = DecodeRecords(11, LAYERS, TOPK, CPU)
    small = [records.of(1) for _ in range(2)]
    assert len({each.device.data_ptr() for each in small}) == 2 and small[0]._host is not small[1]._host
    large = {rows: records.of(rows) for rows in (2, 3, 4, 8, 11)}
    assert len({each.device.data_ptr() for each in large.values()}) == 1
    assert [len(each.device) for each in large.values()] == [2, 3, 4, 8, 11]
    assert large[3]._host is large[4]._host is not large[2]._host
    assert {rows: tuple(each._host.whole.shape[:2]) for rows, each in large.items()} == {
        2: (2, 2), 3: (2, 4), 4: (2, 4), 8: (2, 8), 11: (2, 11)
    }  # fmt: skip


def test_memory_for_records_is_counted() -> None:
    """The released model's, with drafts and without: 1 MB a row, and a ring's chunk for each bucket of small steps."""
    assert row_bytes(61, 2048) == 61 * 2048 * 8
    assert most_bytes(1024, 0, 61, 2048) == 1024 * row_bytes(61, 2048)
    assert most_bytes(1280, 100, 61, 2048) == 2048 * row_bytes(61, 2048) + (100 << 20)
    limits = CacheBudget(8192, 256, 163840, 0.9)
    config = read_config(Path(DEMO))
    assert record_bytes(config, limits, mtp=True) > record_bytes(config, limits, mtp=False) > 256 * row_bytes(3, 128)


def test_without_memory_a_selection_is_lost_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(np.ndarray):
        def copy(self, order: Any = "C") -> Any:
            raise MemoryError("no memory")

    record = DecodeRecord.separate(1, LAYERS, TOPK, CPU)
    step = launch(record, 0)
    values = record.at(0).view(Full)
    step.decodes(values)
    with pytest.raises(Fault, match="recording its selections failed: MemoryError: no memory"):
        read(step)
    assert is_step(read(launch(record, 1))[0], 1, 0)


def test_selections_are_made_when_somebody_looks() -> None:
    values = np.arange(LAYERS * 2 * TOPK, dtype=np.int32).reshape(LAYERS, 2, TOPK)
    recording = Recording(list(range(20)), LAYERS, TOPK)
    for position in (2, 19):  # with fewer positions than are selected, and with more
        recording.add(7, TokenSelection(position, values, position == 19))
    assert not any(each.is_read for each in recording._selections) and recording.fractions == [1.0, TOPK / 20]
    assert recording.bytes == 4 * LAYERS * (3 + 2 * TOPK) and recording.header()["drafted"] == [1]
    short, long = recording._selections
    assert [each.tolist() for each in short.layers.values()] == [[0, 1, 2], [8, 9, 10]] and not short.scores
    assert [each.tolist() for each in long.layers.values()] == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert long.scores[1].view(np.int32).tolist() == [12, 13, 14, 15] and not long.mass and long.is_read
    assert long.positions(np.int64(1)).tolist() == [8, 9, 10, 11]  # type: ignore[arg-type]
    for layer in (-1, "x"):
        with pytest.raises(ValueError, match=f"^layer is {layer!r}; expected a layer's number"):
            long.positions(layer)  # type: ignore[arg-type]


@pytest.mark.heavy
def test_recorded_graphs_are_read_at_once_late_and_by_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of several requests with drafts or without, over many steps; on a CPU the graphs are plain calls."""
    monkeypatch.setattr(runner, "can_capture", lambda model: True)
    llm = LLM(
        tiny_checkpoint(tmp_path), device="cpu", precision="exact", config_overrides={"index_topk": 64}, page_count=16
    )
    greedy = SamplingParams(temperature=0, max_tokens=7, ignore_eos=True)
    prompts = [[3 + i * step % 200 for i in range(length)] for step, length in ((7, 150), (13, 60))]
    for prompt, late in zip(prompts, llm.generate(prompts, greedy, inspect=True), strict=True):
        assert late.selection is not None
        at_once = [delta.selection for delta in llm.stream(prompt, greedy, inspect=True) if delta.selection]
        for one, other in zip(at_once, late.selection, strict=True):
            assert one.position == other.position
            for layer in range(llm.config.num_hidden_layers):
                assert one.positions(layer).tolist() == other.positions(layer).tolist()
        [again] = llm.generate(prompt, greedy, inspect=True, policy=late.replay())
        assert again.token_ids == late.token_ids
        for one, other in zip(again.selection or (), late.selection, strict=True):
            for layer in range(llm.config.num_hidden_layers):
                assert one.positions(layer).tolist() == other.positions(layer).tolist()
