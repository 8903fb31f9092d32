"""The attention kernels for Hopper over wide grids, with sizes that need a GPU.

The tests of the operations (test_sparse_mla*, test_dense_mla) run with these kernels, too; test_compiled.py checks their code.
"""

import math
from itertools import product

import pytest
import torch

from deepseek_v32.kernels.dense_mla import dense_mla_decode, paged_mla_decode_h16
from deepseek_v32.kernels.device import is_hopper
from deepseek_v32.kernels.reference.dense_mla import dense_mla_decode as reference_dense
from deepseek_v32.kernels.reference.sparse_mla_prefill import sparse_attention
from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill
from support.compare import BF16_OUT, LSE, LSE_FP8, Tolerance, assert_close

SCALE = 0.1352337788608801
# Of keys, as in the public tests, whose tolerances apply; queries are ten times larger, so that logits differ.
SIZE = 0.1
INT_MIN = -(2**31)


def here() -> torch.device:
    device = torch.device("cuda", 0)
    if not torch.cuda.is_available() or not is_hopper(device):
        pytest.skip("no Hopper GPU")
    return device


def rows(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, device=generator.device)


def random_indices(
    generator: torch.Generator, queries: int, columns: int, keys: int, past_the_end: bool
) -> torch.Tensor:
    """Random indices, also repeated ones; one in eight is invalid."""
    device = generator.device
    indices = torch.randint(0, max(keys, 1), (queries, columns), generator=generator, device=device)
    wrong = [-1, INT_MIN, keys, 2**31 - 1] if past_the_end else [-1]
    kind = torch.randint(0, 8 * len(wrong), indices.shape, generator=generator, device=device)
    for i, value in enumerate(wrong):
        indices[kind == i] = value
    return indices.int()


def fp8_cache(generator: torch.Generator, slots: torch.Tensor, pages: int, page: int) -> torch.Tensor:
    """Records at `slots`; all other bytes are NaN."""
    cache = torch.full((pages * page, 656), 0xFF, dtype=torch.uint8, device=slots.device)
    scales = 2.0 ** torch.randint(-13, -9, (len(slots), 4), generator=generator, device=slots.device)
    values = rows(generator, len(slots), 4, 128) * SIZE / scales[..., None]
    record = torch.cat(
        (
            values.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).flatten(1),
            scales.float().view(torch.uint8),
            (rows(generator, len(slots), 64) * SIZE).bfloat16().view(torch.uint8),
        ),
        1,
    )
    cache[slots] = record
    return cache.view(pages, page, 1, 656)


def compare(result: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, what: str) -> None:
    assert_close(result, expected.double().cpu().numpy(), tolerance, what)


PREFILL = [
    (128, 128),
    (256, 256),
    (512, 512),
    (592, 128),
    (1840, 256),
    (1592, 384),
    (1521, 512),
    (95, 128),
    (153, 256),
    (114, 384),
]
LARGE = [(32, 2048), (64, 8192)]
PREFILL_CASES = [
    *product([*product(PREFILL, (1, 62, 213)), *product(LARGE, (1,))], (16, 32, 64, 128)),
    *product(product(LARGE, (1024,)), (64, 128)),
]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("sizes", "queries", "heads"),
    [
        pytest.param(sizes, queries, heads, id=f"{sizes[0]}x{sizes[1]}-{queries}-{heads}")
        for (sizes, queries), heads in PREFILL_CASES
    ],
)
def test_prefill(sizes: tuple[int, int], queries: int, heads: int) -> None:
    """Over strided bf16 rows, and over the FP8 cache by slot."""
    device = here()
    keys, columns = sizes
    generator = torch.Generator(device).manual_seed(keys + columns)
    q = rows(generator, queries, heads + 1, 640).bfloat16()[:, :heads, :576]
    kv = (rows(generator, keys, 1, 584) * SIZE).bfloat16()[..., :576]
    indices = random_indices(generator, queries, columns, keys, True)
    first = sparse_mla_prefill(q, kv, indices[:, None], SCALE, backend="cuda")
    again = sparse_mla_prefill(q, kv, indices[:, None], SCALE, backend="cuda")
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    expected = sparse_attention(q.float(), kv[:, 0].float(), indices, SCALE, 512, None, None)
    for mine, theirs, tolerance, what in zip(
        first, expected, (BF16_OUT, LSE, LSE), ("out", "max_logits", "lse"), strict=True
    ):
        compare(mine, theirs, tolerance, what)

    cache = fp8_cache(generator, torch.arange(keys, device=device), -(-keys // 64), 64)
    inside = torch.where((indices < keys) & (indices >= 0), indices, -1)
    from_cache = sparse_mla_prefill(q, cache, inside[:, None], SCALE, backend="cuda")
    expected = sparse_attention(q.float(), cache, inside, SCALE, 512, None, None)
    tolerances = (BF16_OUT, LSE_FP8, LSE_FP8)
    for mine, theirs, tolerance, what in zip(
        from_cache, expected, tolerances, ("out", "max_logits", "lse"), strict=True
    ):
        compare(mine, theirs, tolerance, f"{what} from the cache")


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [16, 128])
def test_prefill_without_a_valid_index(heads: int) -> None:
    device = here()
    generator = torch.Generator(device).manual_seed(0)
    q, kv = rows(generator, 5, heads, 576).bfloat16(), rows(generator, 70, 1, 576).bfloat16()
    for value in (-1, INT_MIN, 70):
        indices = torch.full((5, 1, 256), value, dtype=torch.int32, device=device)
        out, max_logits, lse = sparse_mla_prefill(q, kv, indices, SCALE, backend="cuda")
        assert out.eq(0).all() and max_logits.isneginf().all() and lse.isneginf().all()


@pytest.mark.gpu
def test_prefill_of_70000_queries() -> None:
    device = here()
    generator = torch.Generator(device).manual_seed(0)
    q, kv = rows(generator, 70000, 16, 576).bfloat16(), (rows(generator, 300, 1, 576) * SIZE).bfloat16()
    indices = random_indices(generator, 70000, 128, 300, True)
    results = sparse_mla_prefill(q, kv, indices[:, None], SCALE, backend="cuda")
    assert all(not result.isnan().any() for result in results)
    some = torch.tensor([0, 1, 65535, 65536, 69999], device=device)
    expected = sparse_attention(q[some].float(), kv[:, 0].float(), indices[some], SCALE, 512, None, None)
    compare(results[0][some], expected[0], BF16_OUT, "out")
    compare(results[2][some], expected[2], LSE, "lse")


DECODE = [*product((1, 2, 6, 64), (1, 2, 4), (20, 140, 4096), (False, True), (128, 2048))]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("batch", "new", "context", "varying", "columns"),
    DECODE,
    ids=[f"B{b}-s{n}-S{s}-{'varying' if v else 'fixed'}-k{k}" for b, n, s, v, k in DECODE],
)
def test_fp8_decode(batch: int, new: int, context: int, varying: bool, columns: int) -> None:
    device = here()
    generator = torch.Generator(device).manual_seed(batch * new + context)
    page = {20: 2, 140: 69, 4096: 64}[context]
    lengths = torch.full((batch,), context, device=device)
    if varying:
        lengths = torch.randint(0, context + 1, (batch,), generator=generator, device=device)
    each = -(-context // page)
    order = torch.randperm(batch * each, generator=generator, device=device)
    used = [order[b * each : (b + 1) * each, None] * page + torch.arange(page, device=device) for b in range(batch)]
    used = [slots.flatten()[: int(length)] for slots, length in zip(used, lengths, strict=True)]
    cache = fp8_cache(generator, torch.cat(used), batch * each + 1, page)
    indices = torch.full((batch, new, columns), -1, dtype=torch.int32, device=device)
    for b, slots in enumerate(used):
        if len(slots):
            chosen = random_indices(generator, new, columns, len(slots), False)
            indices[b] = torch.where(chosen < 0, -1, slots[chosen.clamp_min(0).long()].int())
    topk_length = torch.randint(0, columns + 1, (batch,), generator=generator, device=device).int() if varying else None
    sink = None
    for heads in (16, 64, 128):
        q = rows(generator, batch, new, heads, 576).bfloat16()
        if varying:
            sink = rows(generator, heads)
        out, lse = sparse_mla_decode(q, cache, indices, SCALE, 512, topk_length, sink, backend="cuda")
        counted = None if topk_length is None else topk_length.repeat_interleave(new)
        expected = sparse_attention(q.flatten(0, 1).float(), cache, indices.flatten(0, 1), SCALE, 512, counted, sink)
        compare(out.flatten(0, 1), expected[0], BF16_OUT, "out")
        compare(lse.transpose(1, 2).flatten(0, 1), expected[2], LSE_FP8, "lse")


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [128, 2048, 4096])
def test_fp8_decode_without_a_valid_index(columns: int) -> None:
    device = here()
    cache = torch.full((3, 64, 1, 656), 0xFF, dtype=torch.uint8, device=device)
    indices = torch.full((128, 1, columns), -1, dtype=torch.int32, device=device)
    for heads in (16, 128):
        out, lse = sparse_mla_decode(
            torch.ones(128, 1, heads, 576, dtype=torch.bfloat16, device=device), cache, indices, SCALE, backend="cuda"
        )
        assert out.eq(0).all() and lse.isneginf().all()


@pytest.mark.gpu
def test_fp8_decode_in_a_graph_with_changing_lengths() -> None:
    """A plan that is made on the device in a captured graph follows topk_length; two runs give the same bits."""
    from deepseek_v32.kernels.cuda.sparse_mla_decode import plan_decode

    device = here()
    generator = torch.Generator(device).manual_seed(0)
    cache = fp8_cache(generator, torch.arange(640, device=device), 10, 64)
    q = rows(generator, 6, 2, 128, 576).bfloat16()
    indices = random_indices(generator, 12, 1024, 640, False).view(6, 2, 1024)
    lengths = torch.full((6,), 1024, dtype=torch.int32, device=device)

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        plan = plan_decode(6, 2, 128, 1024, device, lengths)
        return sparse_mla_decode(q, cache, indices, SCALE, topk_length=lengths, plan=plan, backend="cuda")

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for counts in ([1024] * 6, [0, 1, 63, 64, 65, 1000], [0] * 6):
        lengths.copy_(torch.tensor(counts))
        graph.replay()
        first = [tensor.clone() for tensor in captured]
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(first, captured, strict=True))
        counted = lengths.repeat_interleave(2)
        expected = sparse_attention(q.flatten(0, 1).float(), cache, indices.flatten(0, 1), SCALE, 512, counted, None)
        compare(captured[0].flatten(0, 1), expected[0], BF16_OUT, "out")
        compare(captured[1].transpose(1, 2).flatten(0, 1), expected[2], LSE_FP8, "lse")


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [64, 128])
@pytest.mark.parametrize("columns", [64, 128, 192, 1984])
def test_fp8_decode_and_prefill_have_the_same_bits(columns: int, heads: int) -> None:
    """They are two kernels. All queries are in the first part of the plan, so both add the same blocks in order."""
    from deepseek_v32.kernels.types import SplitPlan

    device = here()
    generator = torch.Generator(device).manual_seed(columns)
    queries = 32
    cache = fp8_cache(generator, torch.arange(2048, device=device), 32, 64)
    q = rows(generator, queries, 1, heads, 576).bfloat16()
    q *= torch.arange(1, 9, device=device).repeat(heads // 8)[:, None]  # references move by different amounts
    indices = random_indices(generator, queries, columns, 2048, False).view(queries, 1, columns)
    indices[0] = -1
    sink = rows(generator, heads)
    prefill, _, prefill_lse = sparse_mla_prefill(q[:, 0], cache, indices, SCALE, attn_sink=sink, backend="cuda")
    for parts in (1, 64):
        table = torch.tensor([queries, 0, queries - 1, 0, 0, 0, 0, 0], dtype=torch.int32).repeat(parts, 1)
        table[0, 0], table[0, 3] = 0, 1 << 30
        plan = SplitPlan(table.to(device), torch.arange(queries + 1, dtype=torch.int32, device=device), heads)
        out, lse = sparse_mla_decode(q, cache, indices, SCALE, attn_sink=sink, plan=plan, backend="cuda")
        assert torch.equal(out[:, 0], prefill) and torch.equal(lse[..., 0], prefill_lse)
    expected = sparse_attention(q[:, 0].float(), cache, indices[:, 0], SCALE, 512, None, sink)
    compare(prefill, expected[0], BF16_OUT, "out")


DENSE = [*product((1, 2, 6, 64), (1, 2, 4), (20, 140, 4096), (False, True))]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("batch", "new", "context", "varying"),
    DENSE,
    ids=[f"B{b}-s{n}-S{s}-{'varying' if v else 'fixed'}" for b, n, s, v in DENSE],
)
def test_dense_decode(batch: int, new: int, context: int, varying: bool) -> None:
    device = here()
    generator = torch.Generator(device).manual_seed(batch * new + context)
    lengths = torch.full((batch,), context, dtype=torch.int32, device=device)
    if varying:
        lengths = torch.randint(0, context + 1, (batch,), generator=generator, device=device).int()
    each = -(-context // 64)
    table = torch.randperm(batch * each, generator=generator, device=device).int().view(batch, each)
    for dtype, heads, causal in ((torch.bfloat16, 16, True), (torch.bfloat16, 128, False), (torch.float16, 64, True)):
        cache = torch.full((batch * each, 64, 1, 576), math.nan, dtype=dtype, device=device)
        flat = cache.view(-1, 576)
        for b, length in enumerate(lengths.tolist()):
            positions = torch.arange(length, device=device)
            flat[table[b, positions // 64].long() * 64 + positions % 64] = (rows(generator, length, 576) * SIZE).to(
                dtype
            )
        q = rows(generator, batch, new, heads, 576).to(dtype)
        first = dense_mla_decode(q, cache, table, lengths, SCALE, causal=causal, backend="cuda")
        again = dense_mla_decode(q, cache, table, lengths, SCALE, causal=causal, backend="cuda")
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        expected = reference_dense(q.float(), cache, table, lengths, SCALE, 512, causal, None)
        compare(first[0], expected[0], BF16_OUT, "out")
        compare(first[1], expected[1], LSE, "lse")


@pytest.mark.gpu
@pytest.mark.parametrize(
    "lengths", [[8192], [0], [1, 0, 700, 4096], [512] * 64], ids=["long", "empty", "ragged", "batch"]
)
def test_one_token_pages(lengths: list[int]) -> None:
    device = here()
    generator = torch.Generator(device).manual_seed(0)
    pages = sum(lengths) + 3
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)
    listed = torch.randperm(pages, generator=generator, device=device).int()[: sum(lengths)]
    kv = (rows(generator, pages, 1, 576) * SIZE).bfloat16()
    q = rows(generator, len(lengths), 16, 576).bfloat16()
    out, lse = paged_mla_decode_h16(
        q[..., :512], q[..., 512:], kv[..., :512], kv[..., 512:], bounds, listed, SCALE, backend="cuda"
    )
    longest = max(*lengths, 1)
    indices = torch.full((len(lengths), longest), -1, dtype=torch.int32, device=device)
    for b, length in enumerate(lengths):
        indices[b, :length] = listed[int(bounds[b]) : int(bounds[b]) + length]
    expected = sparse_attention(q.float(), kv[:, 0].float(), indices, SCALE, 512, None, None)
    compare(out, expected[0], BF16_OUT, "out")
    compare(lse, expected[2] / math.log(2), LSE, "lse")


@pytest.mark.gpu
def test_refusals() -> None:
    """Inputs that the kernels do not support are a ValueError that says what was expected."""
    device = here()
    q = torch.zeros(2, 16, 576, dtype=torch.bfloat16, device=device)
    kv = torch.zeros(64, 1, 576, dtype=torch.bfloat16, device=device)
    indices = torch.zeros(2, 1, 128, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="16 bytes"):
        sparse_mla_prefill(
            q,
            torch.zeros(64 * 577, dtype=q.dtype, device=device).as_strided((64, 1, 576), (577, 577, 1)),
            indices,
            SCALE,
        )
    with pytest.raises(ValueError, match="576 dims, not 320"):
        sparse_mla_prefill(q[..., :320].contiguous(), kv[..., :320].contiguous(), indices, SCALE, 256, backend="cuda")
    with pytest.raises(ValueError, match="float32"):
        sparse_mla_prefill(q.float(), kv.float(), indices, SCALE, backend="cuda")
    with pytest.raises(ValueError, match="plan is for 3 queries"):
        from deepseek_v32.kernels.cuda.sparse_mla_decode import plan_decode

        cache = torch.zeros(2, 64, 1, 656, dtype=torch.uint8, device=device)
        plan = plan_decode(3, 1, 16, 128, device)
        sparse_mla_decode(q[:, None], cache, indices, SCALE, plan=plan, backend="cuda")
