"""Where a CUDA implementation runs PyTorch instead of its kernels is what `doctor` says, tested without a GPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from deepseek_v32.kernels import availability
from deepseek_v32.kernels.availability import falls_back
from deepseek_v32.kernels.cuda import fp32_ops, kv_up_projection, routing
from deepseek_v32.kernels.implementations import OPERATIONS
from deepseek_v32.kernels.types import ExpertChoice


class Library:
    """Stands in for a compiled library and counts the launches."""

    def __init__(self) -> None:
        self.launches = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        def launch(*_: object) -> None:
            self.launches += 1

        return launch


def linear(tokens: int, width: int, dtype: torch.dtype = torch.float32) -> Any:
    return fp32_ops.fp32_linear(torch.ones(tokens, width, dtype=dtype), torch.ones(3, width), 1.0)


def norm(width: int) -> Any:
    return fp32_ops.layer_norm(torch.ones(2, width), torch.ones(width), torch.ones(width), 1e-6)


def route(experts: int, groups: int, topk: int) -> Any:
    return routing.route(torch.ones(2, experts), torch.ones(experts), ExpertChoice(topk, groups, 1, True, 1.0))


def absorb(nope: int, latent: int) -> Any:
    q, angles = torch.ones(2, 1, nope + 16).bfloat16(), torch.ones(2, 8)
    return kv_up_projection.absorb_queries(q, angles, angles, torch.ones(1, nope, latent).bfloat16())


def rotate(nope: int) -> Any:
    angles = torch.ones(2, 8)
    return kv_up_projection.rotate_queries(torch.ones(2, 1, nope + 16).bfloat16(), angles, angles)


def expand(tokens: int, latent: int = 512) -> Any:
    latents, wv = torch.ones(tokens, 1, latent).bfloat16(), torch.ones(1, 128, latent).bfloat16()
    return kv_up_projection.expand_quantize(latents, wv, True)


CASES = {  # operation: words of the sentence, calls within the limits, calls beyond them
    "fp32_linear": (
        "8192 dims, for unaligned rows, or for more than 32 fp32 tokens",
        [lambda: linear(32, 8192), lambda: linear(33, 8, torch.bfloat16)],
        [lambda: linear(33, 8), lambda: linear(1, 8196), lambda: linear(1, 8196, torch.bfloat16)],
    ),
    "layer_norm": ("256 dims", [lambda: norm(256)], [lambda: norm(257)]),
    "route": (
        "1023 experts, 32 groups or top-32",
        [lambda: route(1023, 1, 32), lambda: route(64, 32, 2)],
        [lambda: route(1024, 1, 2), lambda: route(66, 33, 2), lambda: route(64, 1, 33)],
    ),
    "group_by_expert": (
        "1023 experts",
        [lambda: routing.group_by_expert(torch.zeros(2, 2).long(), 1023, 0, 1)],
        [lambda: routing.group_by_expert(torch.zeros(2, 2).long(), 1024, 0, 1)],
    ),
    "absorb_queries": (
        "other than 128 of 512 dims",
        [lambda: absorb(128, 512)],
        [lambda: absorb(64, 512), lambda: absorb(128, 256)],
    ),
    "rotate_queries": ("other than 128 dims", [lambda: rotate(128)], [lambda: rotate(64)]),
    "expand_quantize": (
        "other than 128 of 512 dims",
        [lambda: expand(4), lambda: expand(5)],
        [lambda: expand(1, 128), lambda: expand(5, 128)],
    ),
}


@pytest.mark.parametrize("operation", CASES)
def test_what_doctor_says_is_so(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, within, beyond = CASES[operation]
    library = Library()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for module in (fp32_ops, kv_up_projection, routing):
        monkeypatch.setattr(module, "load", lambda name: library)
    sentence = falls_back(operation, "cuda")
    assert sentence is not None and limits in sentence and sentence.startswith("torch")
    for count, call in enumerate(within, 1):
        call()
        assert library.launches == count
    for call in beyond:
        call()
    assert library.launches == len(within)


def test_only_these_fall_back() -> None:
    found = {operation for operation in OPERATIONS if falls_back(operation, "cuda")}
    assert found == {*CASES, "mha_prefill"}  # that one warns when it does
    assert not any(falls_back(operation, "reference") for operation in OPERATIONS)


def test_a_broken_package_is_a_sentence_of_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled implementation whose packages are there and do not work must not end the command that is to find this out."""

    def fail(name: str, package: str) -> None:
        raise ImportError(f"{name} of {package}\nis broken")

    monkeypatch.setattr(availability, "import_module", fail)
    sentence = falls_back("route", "cuda")
    assert sentence is not None and sentence.startswith("cannot be imported: ImportError: ..cuda.routing")
    assert "\n" not in sentence
