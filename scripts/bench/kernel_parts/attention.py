"""Attention: sparse and multi-head prefill, FP8 sparse decode, dense decode, and the bound of sparse kernels, gathering rows."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from deepseek_v32.kernels.build import load_source
from deepseek_v32.kernels.cuda import sparse_mla_decode
from deepseek_v32.kernels.dense_mla import dense_mla_decode, mha_prefill, paged_mla_decode_h16, plan_dense
from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode as sparse_decode
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill

from .harness import BF16, Case, rotations_for

SCALE = 0.1352337788608801  # of DeepSeek-V3.2: 192 ** -0.5 times the square of YaRN's factor
QUERIES, TOPK, WIDTH, LATENT, RECORD = 4096, 2048, 576, 512, 656
GATHER_RATE = Path(__file__).parent / "gather_rate" / "launch.cu"


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def latent_cache(tokens: int) -> torch.Tensor:
    """A cache of random records: finite e4m3 bytes, power-of-two scales, bf16 RoPE dims."""
    records = torch.randint(0, 256, (tokens, RECORD), dtype=torch.uint8, device="cuda")
    records[:, :512] &= 0xB7  # exponents below 8: no NaN, values up to 0.9
    records[:, 512:528] = torch.full((tokens, 4), 0.5, device="cuda").view(torch.uint8)
    records[:, 528:] = torch.randn(tokens, 64, device="cuda").bfloat16().view(torch.uint8)
    return records.view(-1, 64, 1, RECORD)


def attention_case(
    name: str,
    make: Callable[[], Callable[[], object]],
    size: int,
    flops: int,
    rotations: int = 1,
    bound: str = "TFLOPS",
) -> Case:
    """A case of `rotations` inputs, each made by `make`. size: the bytes that one run reads and writes."""
    calls = [make() for _ in range(rotations)]
    return Case(
        name, lambda i: calls[i](), rotations, size, flops, unit="GB/s" if bound == "GB/s" else "TFLOPS", peak=BF16
    )


def prefill_cases() -> Iterator[Case]:
    from .plain_attention import sparse_mla_prefill_plain

    cuda, tile = partial(sparse_mla_prefill, backend="cuda"), partial(sparse_mla_prefill, backend="tile")
    forms: list[tuple[str, Callable[..., object], int]] = [
        ("cuda", cuda, 1152),
        ("cuda, fp8 cache", cuda, RECORD),
        ("pipelined tile", tile, 1152),
    ]
    for heads in (128, 64, 16):
        for cached in (8192, 32768, 131072):
            others = [("plain tile", sparse_mla_prefill_plain, 1152)] if (heads, cached) == (128, 8192) else []
            for name, call, width in forms + others:

                def make(
                    call: Callable[..., object] = call, heads: int = heads, cached: int = cached, width: int = width
                ) -> Callable[[], object]:
                    keys = latent_cache(cached) if width == RECORD else bf16(cached, 1, WIDTH)
                    indices = torch.randint(0, cached, (QUERIES, 1, TOPK), device="cuda", dtype=torch.int32)
                    return partial(call, bf16(QUERIES, heads, WIDTH), keys, indices, SCALE)

                size = QUERIES * heads * (WIDTH + LATENT) * 2 + cached * width + QUERIES * TOPK * 4
                flops = 2 * QUERIES * TOPK * heads * (WIDTH + LATENT)
                yield attention_case(f"sparse prefill, {name}, {heads} heads, {cached} keys", make, size, flops)
    heads, key, value = 128, 192, 128
    for tokens in (2048, 4096, 8192):

        def make_mha(tokens: int = tokens) -> Callable[[], object]:
            v = bf16(tokens, heads, 2 * value)[..., value:]
            return partial(mha_prefill, bf16(tokens, heads, key), bf16(tokens, heads, key), v, SCALE)

        flops = tokens * tokens * heads * (key + value)
        size = 2 * tokens * heads * 2 * (key + value)
        yield attention_case(f"MHA prefill, {tokens} tokens, {heads} heads", make_mha, size, flops)


def sparse_decode_cases() -> Iterator[Case]:
    context = 8192
    for heads in (128, 64, 16):
        for batch, new in ((128, 1), (128, 2), (64, 1), (16, 1), (1, 1)):

            def make(heads: int = heads, batch: int = batch, new: int = new) -> Callable[[], object]:
                q, cache = bf16(batch, new, heads, WIDTH), latent_cache(batch * context)
                chosen = torch.rand(batch, new, context, device="cuda").argsort(-1)[..., :TOPK].int()
                indices = chosen + torch.arange(batch, device="cuda", dtype=torch.int32)[:, None, None] * context
                plan = sparse_mla_decode.plan_decode(batch, new, heads, TOPK, q.device)
                return partial(sparse_decode, q, cache, indices, SCALE, plan=plan, backend="cuda")

            size = batch * new * (TOPK * RECORD + heads * (WIDTH + LATENT) * 2)
            flops = 2 * batch * new * TOPK * heads * (WIDTH + LATENT)
            rotations = rotations_for(size, at_most=8)  # a cache of 128 contexts takes 0.7 GB
            yield attention_case(
                f"fp8 sparse decode, {heads} heads, B={batch}, s_q={new}", make, size, flops, rotations
            )


def dense_decode_cases() -> Iterator[Case]:
    for heads, batch, cached in ((128, 128, 4096), (16, 128, 4096), (16, 64, 8192), (16, 1, 8192)):
        size = batch * (cached * WIDTH * 2 + heads * (WIDTH + LATENT) * 2)
        flops = 2 * batch * cached * heads * (WIDTH + LATENT)

        def make(heads: int = heads, batch: int = batch, cached: int = cached) -> Callable[[], object]:
            q, cache = bf16(batch, 1, heads, WIDTH), bf16(batch * cached // 64, 64, 1, WIDTH)
            table = torch.randperm(cache.shape[0], device="cuda").int().view(batch, -1)
            lengths = torch.full((batch,), cached, device="cuda", dtype=torch.int32)
            plan = plan_dense(lengths, 1, heads)
            return partial(dense_mla_decode, q, cache, table, lengths, SCALE, plan=plan)

        title = f"dense decode, {heads} heads, B={batch}, {cached} keys"
        yield attention_case(title, make, size, flops, rotations_for(size), "GB/s")
    for batch, cached in ((64, 8192), (1, 8192)):

        def make_pages(batch: int = batch, cached: int = cached) -> Callable[[], object]:
            pages = torch.randperm(batch * cached, device="cuda").int()
            bounds = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * cached
            q, keys = (
                (bf16(batch, 16, 512), bf16(batch, 16, 64)),
                (bf16(batch * cached, 1, 512), bf16(batch * cached, 1, 64)),
            )
            return partial(paged_mla_decode_h16, *q, *keys, bounds, pages, SCALE, backend="cuda")

        size, flops = batch * cached * 1152, 2 * batch * cached * 16 * (WIDTH + LATENT)
        title = f"16-head one-token pages, B={batch}, {cached} keys"
        yield attention_case(title, make_pages, size, flops, rotations_for(size), "GB/s")


def gather_cases() -> Iterator[Case]:
    """The time to gather the rows of a prefill of 4096 queries into shared memory, with nothing computed."""
    gather_rate = load_source(GATHER_RATE).gather_rate
    count = QUERIES * TOPK
    for width in (RECORD, 1152):
        for cached in (8192, 32768, 131072):
            for name, bulk in (("bulk copies", True), ("16-byte copies", False)):

                def make(width: int = width, cached: int = cached, bulk: bool = bulk) -> Callable[[], object]:
                    rows = torch.zeros(cached, width, dtype=torch.uint8, device="cuda")
                    indices = torch.randint(0, cached, (count,), device="cuda", dtype=torch.int32)
                    return partial(gather_rate, rows, indices, bulk, 4, 2 if width == RECORD else 1)

                yield attention_case(
                    f"gather, {name}, {count} rows of {width} B, {cached} rows", make, count * width, 0, 1, "GB/s"
                )


def cases(device: torch.device) -> Iterator[Case]:
    yield from prefill_cases()
    yield from sparse_decode_cases()
    yield from dense_decode_cases()
    yield from gather_cases()
