"""Numbers in e4m3 to fp32 on a CPU.

On one thread of a Xeon, torch's own conversion takes 3.6 ns a number. These passes take 0.3, besides the memory's time.

The mantissa and exponent of e4m3, shifted by 7, are those of an fp16 number 2^8 times smaller, subnormal or not. So a byte is
extended by its sign and shifted, and the second copy of its sign is cleared. Only the codes of NaN would become 480.
"""

from collections.abc import Iterator

import torch

# For each thread at a time, so that every pass after the first finds them in a cache. 2^17 to 2^20 take the same time; with fewer
# parts, threads wait for each other less often.
NUMBERS = 1 << 20
SHRUNK = 2.0**-8


def row_parts(codes: torch.Tensor, most: int = 1 << 30) -> Iterator[slice]:
    """Yield parts of the rows of codes [N, K] that fit in the threads' caches, of a power of two of rows, at most `most`."""
    fitting = NUMBERS * torch.get_num_threads() // max(codes.shape[1], 1)
    step = min(most, 1 << max(fitting.bit_length() - 1, 0))
    for first in range(0, len(codes), step):
        yield slice(first, first + step)


def shrink(codes: torch.Tensor, out: torch.Tensor) -> None:
    """Write the numbers of codes e4m3 [N, K], times SHRUNK, to `out` fp32 [N, K]."""
    if holds_nan(codes):
        torch.mul(codes.float(), SHRUNK, out=out)
    else:
        _shift(codes, out)


def holds_nan(codes: torch.Tensor) -> bool:
    """Return whether the largest signed or the largest unsigned byte is a code of NaN."""
    return codes.numel() > 0 and bool(codes.view(torch.int8).amax() == 127 or codes.view(torch.uint8).amax() == 255)


def _shift(codes: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(codes.view(torch.int8).to(torch.int16).mul_(1 << 7).bitwise_and_(~(1 << 14)).view(torch.float16))


def shrunk_columns(codes: torch.Tensor, width: int) -> Iterator[torch.Tensor]:
    """Yield `width` columns of codes e4m3 [N, K] after the other in fp32, times SHRUNK. The next ones overwrite them."""
    plain = codes.device.type != "cpu" or any(holds_nan(codes[part]) for part in row_parts(codes))
    buffer = torch.empty(len(codes) * min(width, codes.shape[1]), device=codes.device)
    for some in codes.split(width, 1):
        numbers = buffer[: some.numel()].view(some.shape)
        if plain:
            torch.mul(some.float(), SHRUNK, out=numbers)
        else:
            for part in row_parts(some):
                _shift(some[part], numbers[part])
        yield numbers
