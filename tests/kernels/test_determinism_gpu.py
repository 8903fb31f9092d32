"""The operations of the deterministic mode on a Hopper GPU: a row has the same bits alone and in every batch.

scripts/check_determinism_units.py compares more rows.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from campaigns import determinism_units as units  # type: ignore[import-not-found]

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


@pytest.mark.parametrize("name", ["fp8_gemm 1536", "linear 16160", "fp32_linear", "attention fp8 128"])
def test_without_the_mode_rows_do_differ(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the comparison can fail."""
    monkeypatch.setattr(units, "ROWS", 600)
    monkeypatch.setattr(units, "PRODUCTS", units.PRODUCTS[:1])
    source = units.Source(torch.device("cuda"), deterministic=False)
    wrong = 0
    for group in (units.product_units, units.attention_units):
        for unit in group(source):
            if unit.name.startswith(name):
                small = units.Unit(unit.name, unit.run, min(unit.rows, 600), (2, 5, 17, 65, 130))
                wrong += units.differing(small)[0]
    assert wrong
