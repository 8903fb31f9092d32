"""The operations of the deterministic mode on a Hopper GPU: a row has the same bits by itself and in every batch.

scripts/check_determinism_units.py compares more rows.
"""

from collections.abc import Callable, Iterator

import pytest
import torch

from campaigns import determinism_units as units
from campaigns.determinism_mutants import gpu_mutants

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("group", units.GROUPS, ids=lambda group: group.__name__)
def test_rows_alone_and_in_batches(
    group: Callable[[units.Source], Iterator[units.Unit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "ROWS", 600)
    for unit in group(units.Source(torch.device("cuda"))):
        small = units.Unit(unit.name, unit.run, min(unit.rows, 600), (2, 5, 17, 65, 130))
        wrong, compared, where = units.differing(small)
        assert wrong == 0 and compared > 24, f"{unit.name}: {where}"


def differ(name: str, source: units.Source, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether rows of the units of this name differ. Others are made, but not run."""
    monkeypatch.setattr(units, "ROWS", 600)
    monkeypatch.setattr(units, "PRODUCTS", units.PRODUCTS[:1])
    monkeypatch.setattr(units, "EXPERTS", ())
    for group in (units.product_units, units.attention_units, units.expert_units, units.row_units):
        for unit in group(source):
            if f"{unit.name} ".startswith(f"{name} "):
                return units.differing(units.Unit(unit.name, unit.run, min(unit.rows, 600), (2, 5, 17, 65, 130)))[0] > 0
    raise AssertionError(f"no unit is {name}")


@pytest.mark.parametrize("name", ["fp8_gemm 1536", "fp8_gemms", "fp32_linear", "attention fp8 128"])
def test_without_the_mode_rows_do_differ(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the comparison can fail."""
    assert differ(name, units.Source(torch.device("cuda"), deterministic=False), monkeypatch)


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        ("body by row count", "linear 16160"),
        ("K split by row count", "fp8_gemm 1536"),
        ("pieces by batch", "attention fp8 16"),
        ("padding leaks", "attention fp8 16"),
        ("merged in any order", "combine_experts"),
        ("fp32 products by row count", "fp32_linear 256"),
    ],
    ids=lambda value: value.replace(" ", "-"),
)
def test_each_mistake_is_found_at_its_operation(mistake: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with gpu_mutants()[mistake].applied():
        assert differ(name, units.Source(torch.device("cuda")), monkeypatch)
