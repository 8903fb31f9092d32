"""Where decode graphs write what their rows select."""

import torch


class DecodeRecord:
    """What the rows of a bucket select: on the device, where the selectors write it, and in two places on the host in turn.

    One place is read while the next step, which may be in flight already, is copied to the other.
    """

    def __init__(self, batch: int, layers: int, topk: int, device: torch.device) -> None:
        shape, on_gpu = (batch, layers, 2, topk), device.type == "cuda"
        self.device = torch.full(shape, -1, dtype=torch.int32, device=device)  # AttentionMetadata.record
        self._hosts = [torch.empty(shape, dtype=torch.int32, pin_memory=on_gpu) for _ in range(2)]
        self._copied = [torch.cuda.Event() if on_gpu else None for _ in range(2)]

    def fetch(self, rows: slice) -> tuple[torch.Tensor, torch.cuda.Event | None]:
        """Start the copy of these rows; they are on the host once the event has occurred, until the second fetch after this."""
        self._hosts.reverse()
        self._copied.reverse()
        host, copied = self._hosts[0][rows], self._copied[0]
        host.copy_(self.device[rows], non_blocking=True)
        if copied is not None:
            copied.record()
        return host, copied
