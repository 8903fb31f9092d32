"""Offloaded experts: the bits of the resident model, in as few slots as one, and faults of files while requests run."""

import ctypes
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.config import MAX_DRAFT_TOKENS
from deepseek_v32.inference.parts import DEMO
from deepseek_v32.kernels.file_rows import RowReader, Wait
from deepseek_v32.model.checkpoint import expert_files
from deepseek_v32.model.checkpoint.conversion import convert
from deepseek_v32.model.checkpoint.manifest import write_manifest
from deepseek_v32.model.checkpoint.safetensors import read_headers
from deepseek_v32.model.errors import CheckpointError
from support.forked_ranks import run_program, run_ranks
from support.job import Job
from tiny_model.checkpoint import TINY, write_checkpoint

# Sizes that are no multiples of FP8 blocks, and an MTP layer.
ODD = replace(
    TINY, hidden_size=200, moe_intermediate_size=72, num_hidden_layers=3, n_routed_experts=8, num_nextn_predict_layers=1
)
PARAMS = SamplingParams(temperature=0.0, max_tokens=8, logprobs=3, ignore_eos=True)
PROMPTS = [
    list(range(5, 95)),
    [17] * 20,
    list(range(300, 150, -1)),
]  # the second chunk of a step's tokens needs most experts


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("offload")
    for dtype in ("bf16", "fp8"):
        write_checkpoint(root / dtype, ODD, dtype, shards=2)
    convert(root / "fp8", root / "converted", 1)
    return root


def run(path: Path, prompts: list[list[int]], **options: Any) -> list[tuple[Any, ...]]:
    """Answers with all of their numbers, of requests that run together in the same batches for the same options."""
    with LLM(path, page_count=40, max_batch_tokens=128, **options) as llm:
        return [(each.token_ids, each.logprobs, each.finish_reason) for each in llm.generate(prompts, PARAMS)]


@pytest.mark.parametrize("slots", [1, 5, 24])
@pytest.mark.parametrize(
    ("dtype", "precision", "options"),
    [
        ("bf16", "exact", {}),  # cast at its use
        ("bf16", "bf16", {}),
        ("bf16", "fp8", {"speculative_tokens": 2}),  # quantised at its use
        ("fp8", "exact", {"deterministic": True, "speculative_tokens": 2}),  # dequantised at its use
        ("fp8", "fp8", {}),
        ("converted", "fp8", {"deterministic": True}),
    ],
)
def test_the_bits_of_the_resident_model(checkpoints, dtype, precision, options, slots, resident):
    path, key, options = checkpoints / dtype, (dtype, precision), {"device": "cpu", "speculative_tokens": 0, **options}
    if key not in resident:
        resident[key] = run(path, PROMPTS, precision=precision, **options)
    assert run(path, PROMPTS, precision=precision, offload="experts", expert_slots=slots, **options) == resident[key]


@pytest.fixture
def native(monkeypatch) -> list[bool]:
    """`row_reader` in Python, into a CPU's memory: the reads after the first ones. The list tells which of them were right."""
    reads = []

    def row_reader(device: torch.device, threads: int) -> RowReader:
        def begin(
            path: bytes, identity: bytes, start: int, places: torch.Tensor, weight: int, scale: int, after: int
        ) -> Wait:
            good = os.path.exists(path)
            if good:
                status, data = os.stat(path), Path(os.fsdecode(path)).read_bytes()
                good = struct.unpack("qqQ", identity) == (status.st_size, status.st_mtime_ns, status.st_ino)
                for which, first, size in places.tolist() if good else ():
                    ctypes.memmove((weight, scale)[which] + first, data[start : start + size], size)
                    start += size
            reads.append(good)
            return lambda milliseconds: good if milliseconds else None  # not done when it is asked for the first time

        return begin

    monkeypatch.setattr(expert_files, "row_reader", row_reader)
    monkeypatch.setattr(expert_files, "is_hopper", lambda device: True)
    return reads


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_the_bits_of_native_reads(checkpoints, dtype, resident, native):
    path, options = checkpoints / dtype, {"device": "cpu", "precision": dtype, "speculative_tokens": 0}
    expected = resident.get((dtype, dtype)) or run(path, PROMPTS, **options)
    for slots in (1, 5):
        assert run(path, PROMPTS, offload="experts", expert_slots=slots, **options) == expected
    assert len(native) > 100 and all(native)


def test_traces_and_cache_checks_of_the_resident_model(checkpoints):
    path = checkpoints / "fp8"
    options: dict[str, Any] = {
        "device": "cpu",
        "precision": "fp8",
        "deterministic": True,
        "check_cache": True,
        "speculative_tokens": 2,
    }
    with LLM(path, page_count=40, **options) as llm:
        expected, answer = llm.trace(PROMPTS[0]), llm.generate(PROMPTS[0], PARAMS)[0]
    with LLM(path, page_count=40, offload="experts", expert_slots=3, **options) as llm:
        found, again = llm.trace(PROMPTS[0]), llm.generate(PROMPTS[0], PARAMS)[0]
    assert found.stages.keys() == expected.stages.keys()
    for name, stage in expected.stages.items():
        assert torch.equal(found.stages[name], stage), name
    assert (again.token_ids, again.logprobs, again.error) == (answer.token_ids, answer.logprobs, None)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp8", "bf16"])
@pytest.mark.parametrize(("model", "deterministic"), [("demo", False), ("demo", True), ("fp8", False)])
def test_the_bits_of_the_resident_model_on_a_gpu(checkpoints, model, deterministic, precision):
    path = DEMO if model == "demo" else checkpoints / model
    prompts = [list(range(5, 900)), *PROMPTS]
    options: dict[str, Any] = {"device": "cuda", "precision": precision, "deterministic": deterministic}
    for drafts in (0, 2):
        expected = run(path, prompts, speculative_tokens=drafts, decode_graphs=False, **options)
        for slots in (1, 5, 24):
            offloaded = {"offload": "experts", "expert_slots": slots, "decode_graphs": False}
            found = run(path, prompts, speculative_tokens=drafts, **offloaded, **options)
            assert found == expected, (drafts, slots)


@pytest.mark.gpu
@pytest.mark.parametrize("deterministic", [False, True])
def test_graphs_that_the_host_interrupts_for_experts(deterministic):
    """One, two and four requests at a time, for which a resident model's graphs have no padding."""
    params = replace(PARAMS, max_tokens=20)
    batches = [[list(range(5, 200))], *([[*range(n, 90 + n)] for n in range(count)] for count in (2, 4))]
    options: dict[str, Any] = {"device": "cuda", "precision": "fp8", "deterministic": deterministic, "page_count": 40}

    def answers(**more: Any) -> tuple[list[Any], int]:
        with LLM(DEMO, speculative_tokens=0, **options, **more) as llm:
            found = [[(each.token_ids, each.logprobs) for each in llm.generate(batch, params)] for batch in batches]
            return found, llm.engine.runner.graphs.captured

    expected, _ = answers()
    for slots in (1, 5, 24):
        found, captured = answers(offload="experts", expert_slots=slots)
        assert found == expected and captured == 3, (slots, captured)


def test_auto_makes_no_drafts(checkpoints):
    """So that decodes of a checkpoint with an MTP layer are graphs by default. A number is kept."""
    for value, most in (("auto", 0), (2, MAX_DRAFT_TOKENS)):
        with offloaded(checkpoints / "fp8", device="cpu", speculative_tokens=value) as llm:
            assert llm.engine.runner.max_draft_tokens == most


RANKS = """
import sys
from deepseek_v32.inference import LLM, SamplingParams

path, device, slots = sys.argv[1:]
options = {"offload": "experts", "expert_slots": int(slots)} if int(slots) else {}
with LLM(path, device=device, precision="fp8", page_count=40, max_batch_tokens=128, speculative_tokens=0, **options) as llm:
    for prompts in ([list(range(5, 200))], [[*range(9, 90)], [17] * 20]):
        params = SamplingParams(temperature=0.0, max_tokens=8, logprobs=3, ignore_eos=True)
        print([(each.token_ids, each.logprobs) for each in llm.generate(prompts, params)])
"""


def test_the_bits_of_resident_ranks(checkpoints):
    expected, found = (run_ranks(2, RANKS, checkpoints / "fp8", "cpu", slots) for slots in (0, 2))
    assert [each.code for each in (*expected, *found)] == [0] * 4, found
    assert found[0].out == expected[0].out and len(found[0].out) > 1000


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("slots", [1, 6])
def test_the_bits_of_resident_ranks_on_two_gpus(slots):
    expected, found = (Job(2, RANKS, DEMO, "cuda", each).wait(240) for each in (0, slots))
    assert [each.code for each in (*expected, *found)] == [0] * 4, found
    assert found[0].out == expected[0].out and len(found[0].out) > 1000


@pytest.fixture(scope="module")
def resident() -> dict[tuple[str, str], Any]:
    return {}


@pytest.fixture
def damaged(checkpoints, tmp_path) -> Path:
    """A copy of a checkpoint, to damage."""
    return shutil.copytree(checkpoints / "fp8", tmp_path / "model")


def expert_file(path: Path) -> tuple[Path, int]:
    """The file of an expert's weight, and its first byte there."""
    tensor = read_headers(path)["model.layers.1.mlp.experts.3.down_proj.weight"]
    return tensor.file, tensor.offset


def overwrite(path: Path, byte: int) -> None:
    file, start = expert_file(path)
    with file.open("r+b") as opened:
        opened.seek(start)
        opened.write(bytes([byte]))


def offloaded(path: Path, **options: Any) -> LLM:
    return LLM(path, precision="fp8", page_count=40, max_batch_tokens=128, offload="experts", expert_slots=4, **options)


def replaced(path: Path) -> None:
    file, _ = expert_file(path)
    shutil.copy(file, path / "copy")
    os.replace(path / "copy", file)


WHILE_RUNNING: dict[str, tuple[Callable[[Path], object], str]] = {
    "vanished": (lambda path: expert_file(path)[0].unlink(), "can no longer be read (No such file or directory)"),
    "truncated": (
        lambda path: os.truncate(expert_file(path)[0], 1000),
        "has changed since it was loaded; expected it as it was",
    ),
    "replaced": (replaced, "has changed since it was loaded; expected it as it was"),
}


@pytest.mark.parametrize("reads", ["python", "native"])
@pytest.mark.parametrize(("damage", "problem"), WHILE_RUNNING.values(), ids=WHILE_RUNNING)
def test_a_file_that_changes_while_requests_run(damaged, damage, problem, reads, request):
    file, _ = expert_file(damaged)
    failed = request.getfixturevalue("native") if reads == "native" else [False]
    with offloaded(damaged, **({"device": "cpu"} if reads == "native" else {})) as llm:
        (before,) = llm.generate(PROMPTS[:1], PARAMS)
        assert before.finish_reason == "length"
        damage(damaged)
        for completion in llm.generate(PROMPTS, PARAMS):
            assert completion.finish_reason == "error"
            assert completion.error is not None and "\n" not in completion.error
            assert completion.error.startswith(f"CheckpointError: {str(file)!r}: {problem}")
        assert llm.stats().pages_used == 0 and not all(failed)


@pytest.mark.parametrize("manifest", [False, True])
def test_a_damaged_expert_is_found_at_its_first_read(damaged, manifest):
    if manifest:
        write_manifest(damaged)
    overwrite(damaged, 0x31 if manifest else 0x7F)
    with offloaded(damaged) as llm:
        for completion in llm.generate(PROMPTS, PARAMS):
            assert completion.finish_reason == "error"
            assert ("the hash of bytes" if manifest else "holds NaN or infinity") in (completion.error or "")


def test_a_read_that_fails_ends_the_requests_of_its_step_only(checkpoints, monkeypatch):
    failing = False
    read_into, (file, start) = expert_files.read_into, expert_file(checkpoints / "fp8")

    def flaky(path: Path, first: int, *arguments: Any) -> None:
        nonlocal failing
        if failing and (path, first) == (file, start):
            failing = False
            raise CheckpointError(path, "can no longer be read (Input/output error)")
        read_into(path, first, *arguments)

    with offloaded(checkpoints / "fp8", device="cpu", max_sequences=1, deterministic=True) as llm:
        expected = [(each.token_ids, each.logprobs) for each in llm.generate(PROMPTS, PARAMS)]
        monkeypatch.setattr(expert_files, "read_into", flaky)
        failing = True
        completions = llm.generate(PROMPTS, PARAMS)
        assert [each.finish_reason for each in completions] == ["error", "length", "length"]
        assert completions[0].error == f"CheckpointError: {str(file)!r}: can no longer be read (Input/output error)"
        assert [(each.token_ids, each.logprobs) for each in completions[1:]] == expected[1:]
        assert [(each.token_ids, each.logprobs) for each in llm.generate(PROMPTS, PARAMS)] == expected


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "synthetic": ({"synthetic": True}, "offload is 'experts'; expected None for synthetic weights"),
    "no slots": ({"expert_slots": 0}, "expert_slots is 0; expected at least 1"),
    "fraction": ({"memory_fraction": 5.0, "page_count": 4}, "memory_fraction is 5.0; expected above 0 and at most 1"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(checkpoints, options, message):
    with pytest.raises(ValueError, match=message):
        LLM(checkpoints / "bf16", **{"offload": "experts"} | options)
    with pytest.raises(ValueError, match="expert_slots is 2; expected None without offload"):
        LLM(checkpoints / "bf16", expert_slots=2)


# Prints how far the memory's high-water mark rises while a model loads and answers, what was announced, and the bytes of files.
MEASURE = """
import sys
from pathlib import Path
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.running.cache import bytes_per_page

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))

def answer(path, slots):
    with LLM(path, precision="bf16", offload="experts", expert_slots=slots, page_count=8, speculative_tokens=0) as llm:
        llm.generate([list(range(100, 120))], SamplingParams(max_tokens=60, temperature=0, ignore_eos=True))
        weights = sum(each.numel() * each.element_size() for each in llm.model.parameters())
        slots = llm.model.expert_slots
        assert slots.read > slots.count
        return weights + slots.count * slots.slot_bytes + 9 * bytes_per_page(llm.config, llm.precision)

answer(sys.argv[1], 2)  # the first call also loads code and starts threads
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # resets the high-water mark
before = status("VmRSS")
announced = answer(sys.argv[2], 38)
print(status("VmHWM") - before, announced, sum(each.stat().st_size for each in Path(sys.argv[2]).glob("*.safetensors")))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's account of a process's memory")
@pytest.mark.heavy
def test_memory_is_what_was_announced(tmp_path):
    """On a CPU the memory of a step is not announced: 24 MB more here."""
    large = replace(TINY, hidden_size=512, moe_intermediate_size=512, num_hidden_layers=7, n_routed_experts=64)
    write_checkpoint(tmp_path / "small", TINY)
    write_checkpoint(tmp_path / "large", large)
    done = run_program(MEASURE, tmp_path / "small", tmp_path / "large")
    assert done.code == 0, done.err
    rise, announced, files = map(int, done.out.split())
    assert files > 6 * announced
    assert 0.7 * announced < rise < 1.05 * announced + 24e6, f"{rise / 1e6:.0f} MB, {announced / 1e6:.0f} MB announced"
