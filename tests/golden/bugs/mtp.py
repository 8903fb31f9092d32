"""The multi-token-prediction layer. Drafts are verified, so its bugs cost acceptance and never show in an answer."""

from contextlib import AbstractContextManager
from typing import Any

import torch

from .bug import ALL, TRACE, Bug
from .patching import replaced


def before_the_norm() -> AbstractContextManager[None]:
    """The layer gets the main model's hidden state before its final norm."""

    def make(forward: Any) -> Any:
        def patched(self: Any, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
            inputs: list[torch.Tensor] = []
            hook = self.norm.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
            try:
                logits, _ = forward(self, *arguments)
            finally:
                hook.remove()
            return logits, inputs[-1]

        return patched

    return replaced("model.transformer.Transformer.forward_with_hidden", make)


def swapped() -> AbstractContextManager[None]:
    """eh_proj gets [hidden | embedding], the order of the paper's formula instead of the weights'."""

    def make(forward: Any) -> Any:
        def patched(self: Any, *arguments: Any) -> torch.Tensor:
            def swap(_: Any, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
                one, other = given[0].chunk(2, 1)
                return (torch.cat((other, one), 1),)

            hook = self.eh_proj.register_forward_pre_hook(swap)
            try:
                result: torch.Tensor = forward(self, *arguments)
                return result
            finally:
                hook.remove()

        return patched

    return replaced("model.mtp.MTPLayer.forward", make)


ONLY = frozenset({TRACE})
BUGS = (
    Bug("mtp-before-the-norm", ONLY, ALL, "mtp_hidden_norm", before_the_norm),
    Bug("mtp-concatenation-swapped", ONLY, ALL, "mtp_input", swapped),
)
