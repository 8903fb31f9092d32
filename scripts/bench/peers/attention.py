"""Cases of attention against FlashMLA: sparse prefill, FP8 sparse decode and dense decode."""

from collections.abc import Callable, Iterator, Sequence

import torch

from deepseek_v32.kernels.cuda import dense_mla, sparse_mla_decode
from deepseek_v32.kernels.dense_mla import dense_mla_decode
from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode as sparse_decode
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill
from deepseek_v32.kernels.types import SplitPlan

from ..kernel_parts.attention import SCALE, TOPK, bf16, latent_cache
from .flash_mla import Call, Peer
from .samples import Case

TOLERANCE = 1e-2  # bf16 results of two orders of summation


def padded(q: torch.Tensor) -> torch.Tensor:
    """`q` with at least 64 heads, as FlashMLA requires."""
    missing = max(64 - q.shape[-2], 0)
    return torch.nn.functional.pad(q, (0, 0, 0, missing))


def first_heads(call: Call, heads: int, out_axis: int, lse_axis: int) -> Call:
    def first() -> Sequence[torch.Tensor]:
        out, lse = call()
        return out.narrow(out_axis, 0, heads), lse.narrow(lse_axis, 0, heads)

    return first


def prefill_cases(peer: Peer) -> Iterator[Case]:
    chunks = [(4096, 128, cached, order) for cached in (8192, 32768, 131072) for order in ("random", "ascending")]
    chunks += [(4096, 64, cached, "random") for cached in (8192, 32768, 131072)]
    chunks += [(tokens, 128, 32768, "random") for tokens in (1, 16, 64, 256, 1024)]
    chunks += [(4096, 16, 8192, "random")]
    for tokens, heads, cached, order in chunks:
        q, kv = bf16(tokens, heads, 576), bf16(cached, 1, 576)
        indices = torch.randint(0, cached, (tokens, 1, TOPK), device="cuda", dtype=torch.int32)
        if order == "ascending":
            indices = indices.sort(-1).values

        def ours(q: torch.Tensor = q, kv: torch.Tensor = kv, indices: torch.Tensor = indices) -> Sequence[torch.Tensor]:
            out, _, lse = sparse_mla_prefill(q, kv, indices, SCALE, backend="cuda")
            return out, lse

        theirs = first_heads(peer.sparse_prefill(padded(q), kv, indices, SCALE), heads, 1, 1)
        name = f"sparse prefill, {tokens} queries, {heads} heads, {cached} keys, {order}"
        yield Case(name, ours, theirs, TOLERANCE)


def fp8_decode_cases(peer: Peer) -> Iterator[Case]:
    context = 8192
    sizes = [(128, s_q, batch) for s_q in (1, 2) for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    sizes += [(128, s_q, batch) for s_q in (3, 4) for batch in (1, 2, 4, 8, 64)]
    sizes += [(64, 1, batch) for batch in (1, 2, 4, 8, 16, 32, 64, 128)]
    sizes += [(16, 1, batch) for batch in (1, 8, 64, 128)] + [(16, 2, 128)]
    for heads, s_q, batch in sizes:
        q, cache = bf16(batch, s_q, heads, 576), latent_cache(batch * context)
        chosen = torch.rand(batch, s_q, context, device="cuda").argsort(-1)[..., :TOPK].int()
        indices = chosen + torch.arange(batch, device="cuda", dtype=torch.int32)[:, None, None] * context
        plan = sparse_mla_decode.plan_decode(batch, s_q, heads, TOPK, q.device)

        def ours(
            q: torch.Tensor = q,
            cache: torch.Tensor = cache,
            indices: torch.Tensor = indices,
            plan: SplitPlan = plan,
        ) -> Sequence[torch.Tensor]:
            return sparse_decode(q, cache, indices, SCALE, plan=plan, backend="cuda")

        theirs = first_heads(peer.fp8_decode(padded(q), cache, indices, SCALE), heads, 2, 1)
        yield Case(f"FP8 decode, {heads} heads, s_q {s_q}, B={batch}", ours, theirs, TOLERANCE)


def dense_decode_cases(peer: Peer) -> Iterator[Case]:
    def skewed(longest: int) -> list[int]:
        return [512] * 20 + [longest] + [512] * 43

    ragged = torch.randint(1024, 16385, (64,), generator=torch.Generator().manual_seed(0)).tolist()
    sizes: list[tuple[int, int, str, list[int]]] = []
    for heads in (128, 16):
        sizes += [
            (heads, 1, "B=128 of 4096", [4096] * 128),
            (heads, 1, "B=64 of 1024 to 16384", ragged),
            (heads, 1, "one of 32768 among 63 of 512", skewed(32768)),
        ]
    sizes += [
        (128, 1, "B=32 of 8192", [8192] * 32),
        (128, 1, "B=8 of 32768", [32768] * 8),
        (128, 2, "B=64 of 4096", [4096] * 64),
        (128, 1, "one of 131072 among 63 of 512", skewed(131072)),
        (16, 1, "B=1 of 8192", [8192]),
        (16, 1, "B=1 of 131072", [131072]),
    ]
    for heads, s_q, name, contexts in sizes:
        batch, width = len(contexts), -(-max(contexts) // 64)
        q, lengths = bf16(batch, s_q, heads, 576), torch.tensor(contexts, dtype=torch.int32, device="cuda")
        pages = [-(-context // 64) for context in contexts]
        cache = bf16(sum(pages), 64, 1, 576)
        order, table = (
            torch.randperm(sum(pages), device="cuda").int(),
            torch.zeros(batch, width, dtype=torch.int32).cuda(),
        )
        for i, row in enumerate(order.split(pages)):
            table[i, : pages[i]] = row
        plan = dense_mla.plan_dense(lengths, s_q, heads)

        def ours(
            q: torch.Tensor = q,
            cache: torch.Tensor = cache,
            table: torch.Tensor = table,
            lengths: torch.Tensor = lengths,
            plan: SplitPlan = plan,
        ) -> Sequence[torch.Tensor]:
            return dense_mla_decode(q, cache, table, lengths, SCALE, causal=True, plan=plan, backend="cuda")

        theirs = peer.dense_decode(q, cache, table, lengths, SCALE, causal=True)
        yield Case(f"dense decode, {heads} heads, s_q {s_q}, {name}", ours, theirs, TOLERANCE)


GROUPS: dict[str, Callable[[Peer], Iterator[Case]]] = {
    "prefill": prefill_cases,
    "fp8-decode": fp8_decode_cases,
    "dense-decode": dense_decode_cases,
}
