"""Prefill attention, sparse (TileLang and CUDA) and multi-head, and dense decode."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from deepseek_v32.kernels.dense_mla import dense_mla_decode, mha_prefill, plan_dense
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill

from .harness import BF16, Case, rotations_for

SCALE = 0.1352337788608801
QUERIES, TOPK, WIDTH, LATENT = 4096, 2048, 576, 512


def _bf16(*shape: int, device: torch.device) -> torch.Tensor:
    return torch.randn(*shape, device=device, dtype=torch.bfloat16)


def _turns(calls: list[Callable[[], object]]) -> Callable[[int], object]:
    return lambda i: calls[i]()


def _sparse(heads: int, cached: int, call: Callable[..., object], device: torch.device) -> Callable[[], object]:
    q, kv = _bf16(QUERIES, heads, WIDTH, device=device), _bf16(cached, 1, WIDTH, device=device)
    indices = torch.randint(0, cached, (QUERIES, 1, TOPK), device=device, dtype=torch.int32)
    return partial(call, q, kv, indices, SCALE)


def _sparse_cases(device: torch.device) -> Iterator[Case]:
    from deepseek_v32.kernels.tile.sparse_mla_prefill import sparse_mla_prefill_plain

    calls: dict[str, Callable[..., object]] = {
        "pipelined tile": partial(sparse_mla_prefill, backend="tile"),
        "plain tile": sparse_mla_prefill_plain,
        "cuda": partial(sparse_mla_prefill, backend="cuda"),
    }
    for heads in (128, 64, 16):
        for cached in (8192, 32768, 131072):
            flops = 2 * QUERIES * TOPK * heads * (WIDTH + LATENT)
            size = QUERIES * heads * (WIDTH + LATENT) * 2 + cached * WIDTH * 2 + QUERIES * TOPK * 4
            for name, call in calls.items():
                if name == "plain tile" and (heads, cached) != (128, 8192):
                    continue
                required = ("450", "580") if name == "pipelined tile" and heads == 128 else ("", "")
                run = _turns([_sparse(heads, cached, call, device)])
                title = f"sparse MLA, {name}, {heads} heads, {cached} keys"
                yield Case(title, run, 1, size, flops, *required, "TFLOPS", peak=BF16)


def _mha_cases(device: torch.device) -> Iterator[Case]:
    heads, key, value = 128, 192, 128
    for tokens, best in ((2048, "517"), (4096, "549"), (8192, "581")):
        q, k = (_bf16(tokens, heads, key, device=device) for _ in range(2))
        v = _bf16(tokens, heads, 2 * value, device=device)[..., value:]
        flops = tokens * tokens * heads * (key + value)
        size = 2 * tokens * heads * 2 * (key + value)
        run = _turns([partial(mha_prefill, q, k, v, SCALE)])
        yield Case(
            f"MHA prefill, {tokens} tokens, {heads} heads",
            run,
            1,
            size,
            flops,
            "",
            best,
            "TFLOPS",
            peak=BF16,
        )


def _decode_cases(device: torch.device) -> Iterator[Case]:
    for heads, batch, cached in ((128, 128, 4096), (16, 128, 4096), (16, 64, 8192), (16, 1, 8192)):
        size = batch * (cached * WIDTH * 2 + heads * (WIDTH + LATENT) * 2)
        flops = 2 * batch * cached * heads * (WIDTH + LATENT)
        for backend in ("tile", "cuda"):
            calls: list[Callable[[], object]] = []
            for _ in range(rotations_for(size)):
                q, cache = (
                    _bf16(batch, 1, heads, WIDTH, device=device),
                    _bf16(batch * cached // 64, 64, 1, WIDTH, device=device),
                )
                table = torch.randperm(cache.shape[0], device=device).int().view(batch, -1)
                lengths = torch.full((batch,), cached, device=device, dtype=torch.int32)
                plan = plan_dense(lengths, 1, heads, backend=backend)
                calls.append(partial(dense_mla_decode, q, cache, table, lengths, SCALE, plan=plan, backend=backend))
            title = f"dense decode, {backend}, {heads} heads, B={batch}, {cached} keys"
            yield Case(title, _turns(calls), len(calls), size, flops, unit="GB/s", peak=BF16)


def cases(device: torch.device) -> Iterator[Case]:
    yield from _sparse_cases(device)
    yield from _mha_cases(device)
    yield from _decode_cases(device)
