"""Time the attention operations and compare them with their targets: a table, then one line of JSON.

Times are medians of CUDA events. Decode runs as a CUDA graph, and the L2 cache is overwritten before each replay. Plans are made
outside of the timing. Bounds: 800 TFLOPS of dense bf16, 3.02 TB/s of device memory (a copy, read plus write, on an H100 SXM).
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from deepseek_v32.kernels.build import load_source
from deepseek_v32.kernels.cuda import dense_mla, sparse_mla_decode
from deepseek_v32.kernels.dense_mla import dense_mla_decode, paged_mla_decode_h16
from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode as sparse_decode
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill

FLOPS, BYTES = 800e12, 3.02e12
SCALE = 0.1352337788608801
RECORD = 656
GATHER_RATE = Path(__file__).parent / "kernel_parts" / "gather_rate" / "launch.cu"


@dataclass
class Case:
    name: str
    microseconds: float
    tflops: float
    gigabytes_per_second: float
    limit_microseconds: float


def measure(call: Callable[[], object], repeats: int, cold: bool) -> float:
    """Microseconds, median."""
    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda") if cold else None
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    run = call
    if cold:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        run = graph.replay
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for start, end in pairs:
        if flush is not None:
            flush.zero_()
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in pairs)[repeats // 2] * 1e3


def latent_cache(tokens: int) -> torch.Tensor:
    """A cache of random records: finite e4m3 values, power-of-two scales, bf16 RoPE dims."""
    records = torch.randint(0, 256, (tokens, RECORD), dtype=torch.uint8, device="cuda")
    records[:, :512] &= 0xB7  # exponents below 8: no NaN, values up to 0.9
    records[:, 512:528] = torch.full((tokens, 4), 0.5, device="cuda").view(torch.uint8)
    records[:, 528:] = torch.randn(tokens, 64, device="cuda").bfloat16().view(torch.uint8)
    return records.view(-1, 64, 1, RECORD)


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def case(name: str, call: Callable[[], object], flops: float, size: float, repeats: int, cold: bool) -> Case:
    time = measure(call, repeats, cold)
    return Case(name, time, flops / time / 1e6, size / time / 1e3, max(flops / FLOPS, size / BYTES) * 1e6)


def prefill_cases() -> Iterator[Case]:
    tokens, topk = 4096, 2048
    for heads in (128, 64, 16):
        q = bf16(tokens, heads, 576)
        for cached in (8192, 32768, 131072):
            indices = torch.randint(0, cached, (tokens, 1, topk), device="cuda", dtype=torch.int32)
            flops = 2 * tokens * topk * heads * (576 + 512)
            for name, kv, width in (("bf16", bf16(cached, 1, 576), 1152), ("fp8 cache", latent_cache(cached), RECORD)):
                yield case(
                    f"sparse prefill, {name}, {tokens} queries, {heads} heads, {cached} keys",
                    partial(sparse_mla_prefill, q, kv, indices, SCALE, backend="cuda"),
                    flops,
                    cached * width + q.numel() * 2 * (1 + 512 / 576) + indices.numel() * 4,
                    10,
                    False,
                )


def sparse_decode_cases() -> Iterator[Case]:
    topk, context = 2048, 8192
    for heads in (128, 64, 16):
        for batch, new in ((128, 1), (128, 2), (64, 1), (16, 1), (1, 1)):
            q, cache = bf16(batch, new, heads, 576), latent_cache(batch * context)
            chosen = torch.rand(batch, new, context, device="cuda").argsort(-1)[..., :topk].int()
            indices = chosen + torch.arange(batch, device="cuda", dtype=torch.int32)[:, None, None] * context
            plan = sparse_mla_decode.plan_decode(batch, new, heads, topk, q.device)
            flops = 2 * batch * new * topk * heads * (576 + 512)
            yield case(
                f"fp8 sparse decode, {heads} heads, B={batch}, s_q={new}",
                partial(sparse_decode, q, cache, indices, SCALE, plan=plan, backend="cuda"),
                flops,
                batch * new * topk * RECORD + q.numel() * 2 * (1 + 512 / 576),
                30,
                True,
            )


def dense_decode_cases() -> Iterator[Case]:
    for heads, batch, context in ((128, 128, 4096), (16, 128, 4096), (16, 64, 8192), (16, 1, 8192)):
        q, cache = bf16(batch, 1, heads, 576), bf16(batch * context // 64, 64, 1, 576)
        table = torch.randperm(cache.shape[0], device="cuda").int().view(batch, -1)
        lengths = torch.full((batch,), context, device="cuda", dtype=torch.int32)
        plan = dense_mla.plan_dense(lengths, 1, heads)
        yield case(
            f"dense decode, {heads} heads, B={batch}, {context} keys",
            partial(dense_mla_decode, q, cache, table, lengths, SCALE, plan=plan, backend="cuda"),
            2 * batch * context * heads * (576 + 512),
            batch * context * 1152,
            20,
            True,
        )
    for batch, context in ((64, 8192), (1, 8192)):
        pages = torch.randperm(batch * context, device="cuda").int()
        bounds = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * context
        nope, rope = bf16(batch, 16, 512), bf16(batch, 16, 64)
        ckv, kpe = bf16(batch * context, 1, 512), bf16(batch * context, 1, 64)
        yield case(
            f"16-head one-token pages, B={batch}, {context} keys",
            partial(paged_mla_decode_h16, nope, rope, ckv, kpe, bounds, pages, SCALE, backend="cuda"),
            2 * batch * context * 16 * (576 + 512),
            batch * context * 1152,
            20,
            True,
        )


def gather_cases() -> Iterator[Case]:
    """The bound of sparse kernels: the time to gather the rows of a prefill of 4096 queries into shared memory."""
    gather_rate = load_source(GATHER_RATE).gather_rate
    count = 4096 * 2048
    for width in (RECORD, 1152):
        for cached in (8192, 32768, 131072):
            rows = torch.zeros(cached, width, dtype=torch.uint8, device="cuda")
            indices = torch.randint(0, cached, (count,), device="cuda", dtype=torch.int32)
            for name, bulk in (("bulk copies", True), ("16-byte copies", False)):
                yield case(
                    f"gather, {name}, {count} rows of {width} B, {cached} rows",
                    partial(gather_rate, rows, indices, bulk, 4, 2 if width == RECORD else 1),
                    0.0,
                    count * width,
                    10,
                    False,
                )


GROUPS = {"gather": gather_cases, "prefill": prefill_cases, "sparse": sparse_decode_cases, "dense": dense_decode_cases}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", default=list(GROUPS), help=f"any of {', '.join(GROUPS)}")
    arguments = parser.parse_args()
    unknown = [group for group in arguments.groups if group not in GROUPS]
    if unknown:
        raise SystemExit(f"group is {unknown[0]!r}; expected any of {', '.join(GROUPS)}")
    if not torch.cuda.is_available():
        raise SystemExit("device is cpu; expected a CUDA GPU, on which attention is timed")
    torch.manual_seed(0)
    name = torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}\n{'case':68} {'us':>9} {'TFLOPS':>7} {'GB/s':>6} {'limit us':>9}")
    cases = []
    for group in arguments.groups:
        for result in GROUPS[group]():
            cases.append(result)
            print(
                f"{result.name:68} {result.microseconds:9.1f} {result.tflops:7.0f} {result.gigabytes_per_second:6.0f} "
                f"{result.limit_microseconds:9.1f}",
                flush=True,
            )
            torch.cuda.empty_cache()
    rounded = [{key: v if isinstance(v, str) else round(v, 2) for key, v in asdict(c).items()} for c in cases]
    assert all(math.isfinite(c.microseconds) for c in cases)
    print(json.dumps({"benchmark": "attention", "device": name, "torch": torch.__version__, "cases": rounded}))


if __name__ == "__main__":
    main()
