"""The choice of an implementation is explicit: a backend that does not exist or cannot run here is an error that says why."""

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch

from deepseek_v32.kernels import implementations as table
from deepseek_v32.kernels.availability import check_backend, describe
from deepseek_v32.kernels.implementations import INVARIANT, OPERATIONS, Implementation
from deepseek_v32.kernels.quantize import quantize_blocks
from deepseek_v32.kernels.registry import BACKENDS, choose, choose_implementation, preference_of
from deepseek_v32.kernels.select_topk import select_topk

CPU = torch.device("cpu")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_every_operation_runs_on_a_cpu(operation: str, backend: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert choose_implementation(operation, CPU, dtype, backend).backend == "reference"
    assert callable(choose(operation, torch.empty(0), backend))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("backend", ["tile", "cuda"])
def test_compiled_kernels_refuse_a_cpu(operation: str, backend: str) -> None:
    """The message says what was asked for, what exists or is needed, and what this machine has."""
    with pytest.raises(ValueError) as error:
        choose_implementation(operation, CPU, torch.bfloat16, backend)
    message = str(error.value)
    assert operation in message and f"no {backend} implementation" in message and "torch.bfloat16" in message
    assert re.search(r"on cpu \(\d+ threads?\)", message)
    exists = any(one.backend == backend for one in OPERATIONS[operation])
    assert (f"{backend} needs a Hopper GPU" if exists else "it has ") in message


@pytest.mark.parametrize("backend", ["triton", "", "CUDA", "Reference", "cuda-first"])
def test_unknown_backend(backend: str) -> None:
    message = re.escape(f"backend is {backend!r}; expected one of auto, reference, tile, cuda")
    with pytest.raises(ValueError, match=message):
        quantize_blocks(torch.ones(1, 128), backend=backend)
    with pytest.raises(ValueError, match=message):
        preference_of(backend)


def test_the_operation_itself_refuses() -> None:
    bounds = torch.zeros(1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"select_topk has no cuda implementation for torch\.float32 on cpu"):
        select_topk(torch.ones(1, 1), *bounds, 1, backend="cuda")


def test_a_model_s_backend_serves_where_it_has_an_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Implementation, "unsupported_reason", lambda *_: None)
    found = {
        backend: {
            operation: choose_implementation(
                operation, torch.device("meta"), torch.bfloat16, preference_of(backend), 576
            ).backend
            for operation in OPERATIONS
        }
        for backend in BACKENDS
    }
    choose_implementation.cache_clear()
    assert set(found["reference"].values()) == {"reference"}
    for backend in ("tile", "cuda"):
        assert found[backend] == {line.operation: line.chosen for line in describe(torch.device("meta"), backend)}
        for operation, implementations in OPERATIONS.items():
            has = backend in [one.backend for one in implementations]
            assert found[backend][operation] == (backend if has else found["auto"][operation])


def test_a_model_s_backend_that_cannot_run_here_is_refused() -> None:
    with pytest.raises(ValueError, match=r"backend is 'cuda'; expected auto or reference on cpu .* needs a Hopper GPU"):
        check_backend("cuda", "cpu")
    for backend in ("auto", "reference"):
        check_backend(backend, "cpu")


@pytest.mark.parametrize(("backend", "package"), [("tile", "tilelang"), ("cuda", "tvm_ffi")])
def test_a_hopper_gpu_without_the_packages_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, backend: str, package: str
) -> None:
    monkeypatch.setattr(table.hardware, "is_hopper", lambda device: True)
    monkeypatch.setattr(table, "find_spec", lambda name: None)
    message = Implementation(backend, "any").unsupported_reason(CPU, torch.bfloat16)
    assert message == f"{backend} needs {package}: pip install 'deepseek-v32[kernels]'"


def test_reference_is_last_so_that_auto_prefers_compiled_kernels() -> None:
    for implementations in OPERATIONS.values():
        backends = [one.backend for one in implementations]
        kinds = {(one.backend, one.device, one.dtypes) for one in implementations}
        assert backends[-1] == "reference" and len(kinds) == len(backends)
        assert set(backends) <= {*BACKENDS, INVARIANT} - {"auto"}


def test_every_reference_exists_under_the_operation_s_name() -> None:
    """References can be imported on any machine, under the name of the operation."""
    for operation, implementations in OPERATIONS.items():
        module = import_module(f"deepseek_v32.kernels.reference.{implementations[-1].module}")
        assert callable(getattr(module, operation))


def test_describe_names_every_operation_and_why_others_do_not_serve() -> None:
    lines = describe(CPU)
    assert [line.operation for line in lines] == list(OPERATIONS)
    for line in lines:
        assert line.chosen == "reference" and line.available == ("reference",)
        compiled = [one for one in OPERATIONS[line.operation] if one.backend not in ("reference", INVARIANT)]
        assert len(line.unsupported_reasons) == len(compiled)
    assert all(line.chosen == "none" for line in describe(CPU, "cuda"))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_implementation_takes_what_the_operation_takes(operation: str) -> None:
    """The same arguments, some of them as one NamedTuple, without the choice of the backend."""
    implementations = OPERATIONS[operation]
    public = getattr(import_module(f"deepseek_v32.kernels.{implementations[-1].module}"), operation)
    expected = [name for name in inspect.signature(public).parameters if name != "backend"]
    if operation.startswith("sparse_mla"):
        expected[1] = "latents"  # kv of a prompt or cache
    if operation.startswith("grouped_gemm"):
        expected.remove("out_dtype")  # of `out`, which implementations always get
    for one in implementations:
        if one.backend == "tile" or one.module.startswith("gpu."):
            pytest.importorskip("tilelang")
        module = import_module(f"deepseek_v32.kernels.{one.backend}.{one.module}")
        assert _names(getattr(module, operation), expected) == sorted(expected), one.backend


def _names(function: Callable[..., Any], expected: list[str]) -> list[str]:
    """The names of the function's arguments in order of the alphabet, with the fields of those that the operation does not have.

    Options of the implementation, which the operation leaves at their defaults, do not count.
    """
    names: set[str] = set()
    for own, each in inspect.signature(function).parameters.items():
        if own in expected:
            names.add(own)
        elif each.default is inspect.Parameter.empty:
            names.update(each.annotation._fields)
    return sorted(names)
