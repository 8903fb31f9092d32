"""The merge of partial results where some contexts are cut and others are not."""

import math

import pytest
import torch

from deepseek_v32.kernels.cuda.dense_mla import plan_dense
from deepseek_v32.kernels.dense_mla import dense_mla_decode
from deepseek_v32.kernels.device import is_hopper
from deepseek_v32.kernels.reference.dense_mla import dense_mla_decode as reference
from support.compare import BF16_OUT, LSE, assert_close

CONTEXTS = {
    "more contexts than a CTA counts at once": [b * 811 % 3000 for b in range(520)],
    "the last one is cut finely": [100] * 300 + [20000],
    "a long one between short ones": [64] * 10 + [40000] + [64] * 10,
    "nothing is cut": [128] * 264,
    "all are cut finely": [9000, 8000],
}


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [1, 20, 128])
@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts_that_many_parts_share(name: str, heads: int) -> None:
    """Rows that are not a multiple of a task's rows; pages that no context owns are NaN; two calls have the same bits."""
    device = torch.device("cuda", 0)
    if not torch.cuda.is_available() or not is_hopper(device):
        pytest.skip("no Hopper GPU")
    contexts, generator = CONTEXTS[name], torch.Generator(device).manual_seed(heads)
    lengths = torch.tensor(contexts, dtype=torch.int32, device=device)
    pages = [-(-length // 64) for length in contexts]
    cache = torch.full((1 + sum(pages), 64, 1, 576), math.nan, device=device, dtype=torch.bfloat16)
    order = 1 + torch.randperm(sum(pages), generator=generator, device=device)
    table = torch.zeros(len(contexts), max(pages), dtype=torch.int32, device=device)
    for b, owned in enumerate(order.split(pages)):
        table[b, : pages[b]] = owned.int()
        values = 0.1 * torch.randn(pages[b] * 64, 576, generator=generator, device=device)
        values[contexts[b] :] = math.nan
        cache[owned] = values.view(-1, 64, 1, 576).bfloat16()
    q = torch.randn(len(contexts), 1, heads, 576, generator=generator, device=device).bfloat16()
    plan = plan_dense(lengths, 1, heads)
    assert bool((plan.split_offset.diff() > 1).any()) == (name != "nothing is cut")
    out, lse = dense_mla_decode(q, cache, table, lengths, 0.1, plan=plan, backend="cuda")
    again = dense_mla_decode(q, cache, table, lengths, 0.1, plan=plan, backend="cuda")
    assert torch.equal(out, again[0]) and torch.equal(lse, again[1])
    expected = reference(q.float(), cache, table, lengths, 0.1, 512, False, None)
    assert_close(out, expected[0].double().cpu().numpy(), BF16_OUT, "out")
    assert_close(lse, expected[1].double().cpu().numpy(), LSE, "lse")
