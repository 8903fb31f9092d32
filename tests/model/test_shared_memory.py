"""Which GPUs, and which backends, sum over ranks through shared memory."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from deepseek_v32.kernels.cuda.all_reduce import Inboxes
from deepseek_v32.model.parallel import collectives
from deepseek_v32.model.parallel.collectives import Ranks, SharedMemory
from deepseek_v32.model.parallel.shard import SplitEmbedding, build_model
from tiny_model.checkpoint import TINY


def test_gpus_that_the_kernel_is_not_compiled_for_sum_by_nccl(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They may reach each other, and its library can be loaded: only its launches would fail."""
    monkeypatch.setattr(collectives, "is_hopper", lambda device: False)
    monkeypatch.setattr(collectives, "describe", lambda device: "a GPU, sm_80, 80 GiB")
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda device, other: True)
    monkeypatch.setattr(collectives, "load", lambda name: None)
    answers: list[bool] = []

    def agree(device: torch.device, yes: bool) -> bool:
        answers.append(yes)
        return yes

    monkeypatch.setattr(collectives, "_agree", agree)
    assert collectives.shared_memory(torch.device("cuda", 0), 0, 2) is None
    assert answers == [False]
    assert "needs a Hopper GPU (sm_90), this is a GPU, sm_80, 80 GiB" in caplog.text


@pytest.mark.parametrize(("backend", "shared"), [("reference", False), ("tile", True), ("auto", True)])
def test_the_reference_sums_by_the_library(backend: str, shared: bool) -> None:
    """The kernel of sums is not part of the reference backend; the tile backend has the fastest where it has none itself."""
    nothing = torch.zeros(0)
    inboxes = Inboxes(nothing, nothing, nothing, 0)
    config = replace(TINY, num_attention_heads=8, v_head_dim=128)
    model = build_model(config, "fp8", backend, "meta", Ranks(0, 2, SharedMemory(inboxes, inboxes)))
    assert isinstance(model.embed_tokens, SplitEmbedding)
    assert (model.embed_tokens.ranks._shared is not None) == shared
    divide: Any = model.divide
    assert (divide.__self__._replicated._ranks._shared is not None) == shared
