"""Which GPUs sum over ranks through shared memory."""

import pytest
import torch

from deepseek_v32.model.parallel import collectives


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
