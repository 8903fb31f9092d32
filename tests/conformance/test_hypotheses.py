"""Hypotheses also name mistakes without a public thread, seeded in the model like the known bugs."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

from conformance.small_model import text
from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.compare import compare
from deepseek_v32.inference.trace import Trace
from deepseek_v32.kernels.reference.rope import rotate_interleaved
from golden.bugs.attention import with_scale
from golden.bugs.experts import routed, shared
from golden.bugs.indexer import LAYER_NORM
from golden.bugs.patching import replaced
from golden.bugs.rope import INDEX_ROPE, MLA_ROPE
from golden.bugs.selection import TOPK

Seed = Callable[[], AbstractContextManager[None]]
SCORES = "kernels.reference.indexer_logits._scores"


def scores(formula: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Seed:
    """Index scores by formula(products [T, H, S], weights [T, H])."""

    def patched(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, _: Any) -> torch.Tensor:
        return formula(torch.einsum("thd,sd->ths", q.float(), k.float()), weights)

    return lambda: replaced(SCORES, lambda _: patched)


def selecting(change: Callable[[torch.Tensor], torch.Tensor]) -> Seed:
    """Select the top-k of change(scores); positions after a query stay -inf."""

    def make(select: Any) -> Any:
        def patched(logits: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            return select(torch.where(logits.isneginf(), logits, change(logits)), *arguments, **options)

        return patched

    return lambda: replaced(TOPK, make)


def half_the_topk() -> AbstractContextManager[None]:
    def make(select: Any) -> Any:
        def fewer(logits: Any, starts: Any, ends: Any, k: int, *rest: Any, **options: Any) -> torch.Tensor:
            found: torch.Tensor = select(logits, starts, ends, k // 2, *rest, **options)
            return torch.nn.functional.pad(found, (0, k - k // 2), value=-1)

        return fewer

    return replaced(TOPK[0], make)


def selection_ignored() -> AbstractContextManager[None]:
    def mask(self: Any, length: int) -> torch.Tensor:
        return torch.ones(len(self.positions), length, dtype=torch.bool).tril(length - len(self.positions))

    return replaced("model.metadata.Selection.mask", lambda _: mask)


def last_dims_interleaved() -> AbstractContextManager[None]:
    def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, _: bool) -> torch.Tensor:
        width = 2 * cos.shape[1]
        return torch.cat((x[..., :-width], rotate_interleaved(x[..., -width:], cos, sin)), -1)

    return replaced(INDEX_ROPE, lambda _: rotate)


def residual_norm_eps() -> AbstractContextManager[None]:
    def make(forward: Any) -> Any:
        def patched(self: Any, x: torch.Tensor, *rest: Any) -> Any:
            kept, self.eps = self.eps, 1e-6
            try:
                return forward(self, x, *rest)
            finally:
                self.eps = kept

        return patched

    return replaced("model.layers.RMSNorm.with_operand", make)


def positions_off_by_one() -> AbstractContextManager[None]:
    return replaced(
        "model.rope.RotaryEmbedding.forward", lambda forward: lambda self, positions: forward(self, positions + 1)
    )


def unscaled_weights() -> AbstractContextManager[None]:
    def make(forward: Any) -> Any:
        return lambda self, x, scale=1.0: forward(self, x, 1.0)

    return replaced("model.indexer.Fp32Linear.forward", make)


MISTAKES: dict[str, tuple[str, Seed]] = {
    "relu-after-the-sum": ("index_scores", scores(lambda p, w: torch.einsum("ths,th->ts", p, w).relu())),
    "index-weights-missing": ("index_scores", scores(lambda p, w: p.relu().sum(1))),
    "index-weights-constant": ("index_weights", unscaled_weights),
    "lowest-scores-selected": ("selection", selecting(lambda logits: -logits)),
    "another-topk": ("selection", half_the_topk),
    "selection-ignored": ("attention_heads", selection_ignored),
    "mscale-once": ("attention_heads", lambda: with_scale(lambda scale, plain: (scale * plain) ** 0.5)),
    "mla-rope-missing": ("key_rope", lambda: replaced(MLA_ROPE, lambda _: lambda x, cos, sin: x)),
    "rope-position-off-by-one": ("key_rope", positions_off_by_one),
    "index-rope-dims-last-interleaved": ("index_key", last_dims_interleaved),
    "key-norm-missing": ("index_key", lambda: replaced(LAYER_NORM, lambda _: lambda x, *rest, **options: x)),
    "norm-eps-default": ("attention_norm", residual_norm_eps),
    "router-weights-not-normalised": (
        "router_weights",
        lambda: routed(lambda route, logits, bias, choice: route(logits, bias, choice._replace(normalise=False))),
    ),
    "shared-expert-multiplied": ("mlp_output", lambda: shared(lambda scaling: scaling)),
    "shared-expert-constant": ("mlp_output", lambda: shared(lambda scaling: 1.7)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str, right: Callable[[str], tuple[LLM, Trace]]) -> None:
    llm, trace = right("exact")
    stage, seed = MISTAKES[name]
    with seed():
        wrong = llm.trace(text())
    report = compare(trace, wrong)
    assert report.first is not None and report.first.stage.endswith(f".{stage}"), report.first
    assert [found.name for found in report.diagnoses[:1]] == [name], (report.first, report.diagnoses)
