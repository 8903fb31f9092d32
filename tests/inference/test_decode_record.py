"""What decode graphs record stays what a step has selected, whenever it is read and whatever the ring has held since."""

import threading
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.limits import CacheBudget
from deepseek_v32.inference.engine.running import decode_record, runner
from deepseek_v32.inference.engine.running.decode_record import DecodeRecord, DecodeRecords, most_bytes, row_bytes
from deepseek_v32.inference.engine.sizing import record_bytes
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.recording import Recording
from deepseek_v32.inference.token_selection import TokenSelection
from deepseek_v32.model.checkpoint.config_json import read_config
from support.tiny import tiny_checkpoint

LAYERS, TOPK = 2, 4
CPU = torch.device("cpu")


@pytest.fixture
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Steps between two moves out of the ring."""
    monkeypatch.setattr(decode_record, "_MOST_STEPS", request.param)
    return request.param


def launch(record: DecodeRecord, number: int) -> None:
    """A step in which row b selects number, number + 1, … + 100 b in every layer and as the bits of every score."""
    rows, _, _, topk = record.device.shape
    values = number + torch.arange(topk) + 100 * torch.arange(rows)[:, None, None, None]
    place = record.next_place()
    record.device.copy_(values.expand(record.device.shape))
    record.copy_to_ring(torch.tensor([place]))


def is_step(values: np.ndarray, number: int, row: int) -> bool:
    return (values == number + 100 * row + np.arange(TOPK)).all()


@pytest.mark.parametrize("chunk", [1, 2, 5], indirect=True)
def test_a_step_is_the_same_whenever_it_is_read(chunk: int) -> None:
    """As in the engine, where one more step is launched before the rows of a step are taken."""
    record, taken, early = DecodeRecord.alone(3, LAYERS, TOPK, CPU), [], []
    steps = []
    for number in range(5 * chunk + 3):
        launch(record, number)
        steps.append(record.latest())
        if number:
            taken.append([partial(steps[-2].rows[row].read, steps[-2].step) for row in (0, 2)])
            early.append([read() for read in taken[-1]])
    for number, (reads, copies) in enumerate(zip(taken, early, strict=True)):
        for row, read, copy in zip((0, 2), reads, copies, strict=True):
            assert read().shape == (LAYERS, 2, TOPK)
            assert is_step(read(), number, row) and is_step(copy, number, row)


@pytest.mark.parametrize("chunk", [1, 3], indirect=True)
def test_other_threads_read_while_the_ring_is_written(chunk: int) -> None:
    record = DecodeRecord.alone(2, LAYERS, TOPK, CPU)
    taken: list[tuple[int, Any]] = []
    wrong, over = [], threading.Event()

    def look() -> None:
        while not over.is_set():
            for number, read in taken[-3 * chunk :]:
                if not is_step(read(), number, 1):
                    wrong.append(number)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1500):
        launch(record, number)
        step = record.latest()
        taken.append((number, partial(step.rows[1].read, step.step)))
    over.set()
    for reader in readers:
        reader.join()
    assert not wrong


@pytest.mark.parametrize("chunk", [1, 4], indirect=True)
def test_steps_of_two_sizes_share_a_ring(chunk: int) -> None:
    """They run in turns, each read at once and late."""
    whole = DecodeRecord.alone(3, LAYERS, TOPK, CPU)
    part, taken = DecodeRecord(whole.device[:2], whole._ring), []
    for number in range(6 * chunk):
        record = (whole, part)[number % 2]
        launch(record, number)
        step = record.latest()
        taken.append([(row, partial(step.rows[row].read, step.step)) for row in range(len(record.device))])
        assert all(is_step(read(), number, row) for row, read in taken[-1])
    for number, reads in enumerate(taken):
        assert all(is_step(read(), number, row) for row, read in reads)


def test_large_steps_share_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's all of it; the host's pinned memory is what the largest recorded step needs, as a power of two."""
    monkeypatch.setattr(decode_record, "_CHUNK_BYTES", 2 * row_bytes(LAYERS, TOPK))
    records = DecodeRecords(11, LAYERS, TOPK, CPU)
    small = [records.of(1) for _ in range(2)]
    assert len({each.device.data_ptr() for each in small}) == 2 and small[0]._ring is not small[1]._ring
    large = {rows: records.of(rows) for rows in (2, 3, 4, 8, 11)}
    assert len({each.device.data_ptr() for each in large.values()}) == 1
    assert [len(each.device) for each in large.values()] == [2, 3, 4, 8, 11]
    assert large[3]._ring is large[4]._ring is not large[2]._ring
    assert {rows: tuple(each._ring.host.shape[:2]) for rows, each in large.items()} == {
        2: (2, 2), 3: (2, 4), 4: (2, 4), 8: (2, 8), 11: (2, 11)
    }  # fmt: skip


@pytest.mark.parametrize("chunk", [2, 5, 8], indirect=True)
def test_rows_leave_the_ring_evenly(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step moves more than its share: a long pause between two steps would leave the device without work."""
    move, moved = decode_record._Row.move, [0] * (6 * chunk)

    def counted(row: Any, stop: int) -> None:
        moved[number] += stop - row._moved
        move(row, stop)

    monkeypatch.setattr(decode_record._Row, "move", counted)
    record = DecodeRecord.alone(3, LAYERS, TOPK, CPU)
    for number in range(6 * chunk):
        launch(record, number)
        assert len([record.latest().rows[row] for row in range(3)]) == 3
    assert sum(moved[chunk : 2 * chunk]) == sum(moved[-chunk:]) == 3 * chunk
    assert max(moved) <= -(-3 * chunk // (chunk - 1))


@pytest.mark.parametrize("chunk", [1, 2, 5], indirect=True)
def test_rows_that_have_left_the_ring_are_not_kept(chunk: int) -> None:
    """A cancelled request's, for one: the engine may have no further step for long."""
    record = DecodeRecord.alone(2, LAYERS, TOPK, CPU)
    launch(record, 0)
    row = weakref.ref(record.latest().rows[1])
    for number in range(1, 2 * chunk):
        assert row() is not None
        launch(record, number)
    if chunk == 1:
        launch(record, 2)
    assert row() is None


def test_memory_for_records_is_counted() -> None:
    """The released model's, with drafts and without: 1 MB a row, and a ring's chunk for each bucket of small steps."""
    assert row_bytes(61, 2048) == 61 * 2048 * 8
    assert most_bytes(1024, 0, 61, 2048) == 1024 * row_bytes(61, 2048)
    assert most_bytes(1280, 100, 61, 2048) == 2048 * row_bytes(61, 2048) + (100 << 20)
    limits = CacheBudget(8192, 256, 163840, 0.9)
    config = read_config(Path(DEMO))
    assert record_bytes(config, limits, mtp=True) > record_bytes(config, limits, mtp=False) > 256 * row_bytes(3, 128)


@pytest.mark.parametrize("chunk", [2], indirect=True)
def test_without_memory_a_selection_is_lost_and_no_step_fails(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise MemoryError

    record = DecodeRecord.alone(1, LAYERS, TOPK, CPU)
    monkeypatch.setattr(decode_record.np, "empty", full)
    launch(record, 0)
    lost = record.latest().rows[0]
    for number in range(1, 5):
        launch(record, number)
    with pytest.raises(MemoryError, match="recorded selection"):
        lost.read(0)


def test_selections_are_read_when_somebody_looks() -> None:
    reads: list[int] = []

    class Row:
        def read(self, step: int) -> np.ndarray:
            reads.append(step)
            return np.arange(LAYERS * 2 * TOPK, dtype=np.int32).reshape(LAYERS, 2, TOPK)

    recording = Recording(list(range(20)), LAYERS, TOPK)
    for position in (2, 19):  # with fewer positions than are selected, and with more
        recording.add(7, TokenSelection.read_later(position, Row(), position, position == 19))
    assert not reads and recording.fractions == [1.0, TOPK / 20]
    assert recording.bytes == 4 * LAYERS * (3 + 2 * TOPK) and recording.header()["drafted"] == [1]
    short, long = recording._selections
    assert [each.tolist() for each in short.layers.values()] == [[0, 1, 2], [8, 9, 10]] and not short.scores
    assert [each.tolist() for each in long.layers.values()] == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert long.scores[1].view(np.int32).tolist() == [12, 13, 14, 15] and not long.mass and reads == [2, 19]


@pytest.mark.heavy
def test_recorded_graphs_are_read_at_once_late_and_by_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of several requests with drafts or without, over many turns of the ring; on a CPU the graphs are plain calls."""
    monkeypatch.setattr(runner, "can_capture", lambda model: True)
    monkeypatch.setattr(decode_record, "_MOST_STEPS", 2)
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
