"""Operands that kernels read before the previous kernel has ended are complete by then, in the order in which a layer launches.

A CPU runs a decode step. Each operation that the model chooses counts as one launch, and so does each computation of torch
outside of them. A product lets the next launch start once all earlier ones have ended; any other, and a product that overlaps
the previous one, may let it start at once (kernels/cuda/pdl.py). So a product must lie between an operand's writer and a launch
that reads it early. test_compiled.py looks in the machine code for what kernels do before they wait, and for when products
let the next one start.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from deepseek_v32.kernels import registry
from deepseek_v32.kernels.types import Quantized
from deepseek_v32.model.launch_order import Later, LaunchOrder
from deepseek_v32.model.layers import Linear
from support.decode_steps import CONFIG, model_and_caches, two_decodes

PRODUCTS = {"fp8_gemm", "fp8_gemms", "fp32_linear", "grouped_gemm", "grouped_gemm_with_shared"}
# Operation -> arguments, apart from weights, that it reads early; and the flag that allows it, if it has one.
EARLY: dict[str, tuple[tuple[str, ...], str | None]] = {
    "paged_indexer_logits": (("cache", "block_table", "lengths"), None),
    "select_topk_slots": (("ends",), None),
    "fp8_gemm": (("a",), "beside_previous"),
    "grouped_gemm_with_shared": (("dense",), "beside_previous"),
}


def places(values: Any) -> set[int]:
    """The storages of all tensors in `values`; weights that oneDNN has packed have none."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided]
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


@dataclass
class Launch:
    operation: str
    early: dict[str, set[int]] = field(default_factory=dict)  # argument -> storages
    writes: set[int] = field(default_factory=set)
    waits: bool = False  # before it lets the next one start


class Recorder(TorchDispatchMode):
    """The launches, and what each of them writes. All results are kept, so that no storage is used again."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []
        self._current: Launch | None = None
        self._kept: list[Any] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self._kept.append(result)
        results = result if isinstance(result, tuple | list) else (result,)
        for returned, one in zip(function._schema.returns, results, strict=False):
            if returned.alias_info is None or returned.alias_info.is_write:  # else it is a view
                if self._current is None:
                    self.launches.append(Launch(f"torch: {function}"))
                (self._current or self.launches[-1]).writes.update(places(one))
        return result

    def of(self, operation: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """`run`, which records itself as a launch."""
        parameters = inspect.signature(run)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            if self._current is not None:
                return run(*args, **kwargs)
            given = parameters.bind(*args, **kwargs).arguments
            given |= given["given"]._asdict() if "given" in given else {}
            names, allowed = EARLY.get(operation, ((), None))
            overlaps = allowed is not None and given.get(allowed, False)
            reads = {name: places(given[name]) for name in names if allowed is None or overlaps}
            self._current = Launch(operation, reads, waits=operation in PRODUCTS and not overlaps)
            self.launches.append(self._current)
            try:
                return run(*args, **kwargs)
            finally:
                self._current = None

        return recorded


def incomplete(launches: list[Launch]) -> Iterator[tuple[str, str]]:
    """Operation and argument of each early read that may come before the writing has ended."""
    writers: dict[int, int] = {}
    product = -1  # the last one
    for number, launch in enumerate(launches):
        for argument, read in launch.early.items():
            if any(writers[place] >= product for place in read & writers.keys()):  # others are the step's inputs
                yield launch.operation, argument
        writers |= dict.fromkeys(launch.writes, number)
        product = number if launch.waits else product


def launches_of_a_step(monkeypatch: pytest.MonkeyPatch, deterministic: bool) -> list[Launch]:
    model, caches = model_and_caches(CONFIG, deterministic)
    recorder, load = Recorder(), registry._load
    monkeypatch.setattr(registry, "_load", lambda name, chosen: recorder.of(name, load(name, chosen)))
    with recorder:
        model(*two_decodes(50), caches)
    return recorder.launches


@pytest.mark.parametrize("deterministic", [False, True])
def test_early_reads_are_complete(deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    launches = launches_of_a_step(monkeypatch, deterministic)
    assert list(incomplete(launches)) == []
    # Without the product between, each would be found.
    found = set()
    for number, launch in enumerate(launches):
        if launch.waits:
            found |= set(incomplete([*launches[:number], replace(launch, waits=False), *launches[number + 1 :]]))
    assert found == {("paged_indexer_logits", "cache"), ("fp8_gemm", "a"), ("grouped_gemm_with_shared", "dense")}


def test_an_operand_that_is_copied_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def copies(
        self: LaunchOrder, x: Quantized, heads: int, query: Linear, index_query: Linear
    ) -> tuple[Later, torch.Tensor]:
        def late() -> torch.Tensor:
            return query(Quantized(x.values.clone(), x.scales), beside_previous=True).unflatten(1, (heads, -1))

        return late, index_query(x)

    monkeypatch.setattr(LaunchOrder, "project", copies)
    assert set(incomplete(launches_of_a_step(monkeypatch, False))) == {("fp8_gemm", "a")}
