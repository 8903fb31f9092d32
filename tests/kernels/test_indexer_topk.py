"""Scores and selection together: the positions that a sort of known scores gives.

Where queries and keys are all alike, a key's score is its scale times one number, so that a test can choose the scores of a row.
"""

from collections.abc import Sequence

import pytest
import torch

from deepseek_v32.kernels import indexer_topk as public
from deepseek_v32.kernels.indexer_topk import indexer_topk
from support.backends import Backend
from support.indexer_problems import random, with_scores
from support.score_rows import SHAPES, expected_positions


def run(backend: Backend, problem: Sequence[torch.Tensor], topk: int) -> torch.Tensor:
    if backend.name == "tile":
        pytest.skip("select_topk: tile not written")
    moved = [tensor.to(backend.device) for tensor in problem]
    return indexer_topk(*moved, topk, backend=backend.name).cpu()


@pytest.mark.parametrize("topk", [1, 64, 300])
@pytest.mark.parametrize(
    "shape", ["ascending", "descending", "all equal", "few above many ties at zero", "mostly -inf"]
)
def test_known_scores(backend: Backend, shape: str, topk: int) -> None:
    scores = SHAPES[shape](700) / 1024
    problem = with_scores(9, scores)
    result = run(backend, problem, topk)
    assert result.dtype == torch.int32 and result.shape == (9, topk)
    for row, end in zip(result.tolist(), problem[4].tolist(), strict=True):
        expected = expected_positions(scores[:end], topk)
        assert sorted(row[: len(expected)]) == expected and row[len(expected) :] == [-1] * (topk - len(expected))


def test_a_few_rows_at_a_time_give_the_same(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random(23, 500)
    whole = run(backend, problem, 40)
    monkeypatch.setattr(public, "LOGITS_BYTES", 4 * 500 * 5)
    assert public.rows_at_a_time(500) == 5 and public.rows_at_a_time(10**9) == 1
    assert torch.equal(run(backend, problem, 40), whole)


def test_ranges_and_empty_rows(backend: Backend) -> None:
    """Positions are relative to a row's start; a row without keys has none."""
    q, k, weights, _, _, scales = with_scores(4, torch.arange(100.0))
    starts, ends = (torch.tensor(values, dtype=torch.int32) for values in ([0, 40, 60, 99], [100, 45, 60, 120]))
    result = run(backend, (q, k, weights, starts, ends, scales), 6)
    assert [sorted(row) for row in result.tolist()] == [
        [94, 95, 96, 97, 98, 99], [-1, 0, 1, 2, 3, 4], [-1] * 6, [-1] * 5 + [0],
    ]  # fmt: skip


def test_nothing_to_select_from(backend: Backend) -> None:
    q, k, weights, starts, ends, scales = random(3, 5)
    assert run(backend, (q[:0], k, weights[:0], starts[:0], ends[:0], scales), 4).shape == (0, 4)
    assert run(backend, (q, k[:0], weights, starts, ends, scales[:0]), 2).tolist() == [[-1, -1]] * 3


def test_misuse_names_the_argument() -> None:
    problem = random(3, 5)
    with pytest.raises(ValueError, match="topk is 0; expected at least 1"):
        indexer_topk(*problem, 0)
    with pytest.raises(ValueError, match=r"ends has shape \[2\]; expected \[3\]"):
        indexer_topk(*problem[:4], problem[4][:2], problem[5], 4)
