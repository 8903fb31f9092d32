"""The selection of a decode step in a CUDA graph, where each kernel may start before the previous one has ended."""

from collections.abc import Callable

import pytest
import torch

from deepseek_v32.kernels.fp8_gemm import fp8_gemm
from deepseek_v32.kernels.hadamard import rotate_quantize
from deepseek_v32.kernels.indexer_logits import paged_indexer_logits
from deepseek_v32.kernels.kv_up_projection import absorb_queries
from deepseek_v32.kernels.norm_and_cache import norm_and_cache
from deepseek_v32.kernels.quantize_weight import quantize_weight
from deepseek_v32.kernels.select_topk import select_topk_slots
from deepseek_v32.kernels.types import Caches, Norms

HEADS, LOW, PAGE, TOPK = 64, 1536, 64, 512


class Step:
    """The operations of a decode step from the first projections' outputs to the absorbed queries, in the model's order."""

    def __init__(self, batch: int, context: int, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(context)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device=device, generator=generator)

        pages = context // PAGE
        self.context = context
        # What changes from step to step.
        self.low, self.kv, self.key = (random(batch, width).bfloat16() for width in (LOW, 576, 128))
        self.head_weights = random(batch, HEADS)
        self.lengths = torch.full((batch,), context, dtype=torch.int32, device=device)
        self.slots = torch.zeros(batch, dtype=torch.int64, device=device)
        # What does not.
        self.table = torch.arange(batch * pages, dtype=torch.int32, device=device).view(batch, pages)
        ones = [torch.ones(width, device=device) for width in (LOW, 512, 128)]
        self.norms = Norms(ones[0], ones[1], ones[2], torch.zeros(128, device=device), 1e-6, 1e-6)
        self.angles = torch.zeros(batch, 32, device=device).cos()
        self.query_weight = quantize_weight(random(4 * 192, LOW) * LOW**-0.5)
        self.index_weight = quantize_weight(random(HEADS * 128, LOW) * LOW**-0.5)
        self.absorbed = (random(4, 256, 512) * 512**-0.5).bfloat16()
        latent = torch.zeros(batch * pages, PAGE, 1, 656, dtype=torch.uint8, device=device)
        keys = torch.randint(
            0, 0x38, (batch * pages, PAGE * 132), dtype=torch.uint8, device=device, generator=generator
        )
        keys[:, : PAGE * 128] ^= torch.randint_like(keys[:, : PAGE * 128], 2) << 7  # signs
        keys.view(torch.float32)[:, PAGE * 32 :] = 0.01
        self.caches = Caches(latent, keys.view(batch * pages, PAGE, 1, 132), self.slots)

    def change(self, generator: torch.Generator) -> None:
        """Inputs of another step: other lengths, and new tokens whose keys go to the ends of the contexts."""
        for each in (self.low, self.kv, self.key, self.head_weights):
            each.copy_(torch.randn(each.shape, device=each.device, generator=generator))
        self.lengths.copy_(
            torch.randint(
                self.context // 2, self.context, self.lengths.shape, device=self.low.device, generator=generator
            )
        )
        last = self.lengths.long() - 1
        pages = self.table.gather(1, (last // PAGE)[:, None])[:, 0]
        self.slots.copy_(pages * PAGE + last % PAGE)

    def run(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The selected slots int32 [B, K], and the absorbed queries."""
        low, _ = norm_and_cache(self.low, self.kv, self.key, self.norms, self.angles, self.angles, self.caches)
        index_q = fp8_gemm(low, *self.index_weight)
        rotated = rotate_quantize(
            index_q.unflatten(1, (HEADS, 128)), self.angles, self.angles, weights=self.head_weights
        )
        assert rotated.weights is not None
        logits = paged_indexer_logits(
            rotated.values[:, None], self.caches.keys, rotated.weights[:, None], self.table, self.lengths, self.context
        )
        slots = select_topk_slots(logits, None, self.lengths, TOPK, self.table, PAGE)
        q = fp8_gemm(low, *self.query_weight, beside_previous=True)
        return slots, absorb_queries(q.unflatten(1, (4, 192)), self.angles, self.angles, self.absorbed[:, :128])


def captured(run: Callable[[], tuple[torch.Tensor, ...]]) -> tuple[torch.cuda.CUDAGraph, tuple[torch.Tensor, ...]]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [run() for _ in range(2)]  # twice: the second starts while the first drains
    return graph, results[1]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "batch, context", [(1, 4096), (1, 32768), (1, 131072), (3, 16384), (16, 32768), (40, 8192)], ids=str
)
def test_a_captured_selection_gives_the_same_bits(batch: int, context: int) -> None:
    """In every step, whose scores, lengths and newest keys differ from the previous step's."""
    device = torch.device("cuda", torch.cuda.current_device())
    step = Step(batch, context, device)
    generator = torch.Generator(device).manual_seed(0)
    step.change(generator)
    step.run()  # compiles kernels outside the capture
    graph, results = captured(step.run)
    previous = None
    for _ in range(8):
        step.change(generator)
        graph.replay()
        replayed = [result.clone() for result in results]
        torch.cuda.synchronize()
        expected = step.run()
        torch.cuda.synchronize()
        assert all(torch.equal(*pair) for pair in zip(replayed, expected, strict=True))
        assert previous is None or not torch.equal(previous, expected[0])  # an old selection would not go unnoticed
        previous = expected[0]
