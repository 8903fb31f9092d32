"""Cases of FP8 products against DeepGEMM: projections, a prompt's experts and a decode step's."""

from collections.abc import Callable, Iterator, Sequence

import torch

from deepseek_v32.kernels.fp8_gemm import fp8_gemm
from deepseek_v32.kernels.grouped_gemm import grouped_gemm
from deepseek_v32.kernels.types import Quantized

from .deep_gemm import Peer
from .samples import Case

SHAPES = ((4096, 7168), (7168, 16384), (2112, 7168), (24576, 1536), (32768, 512), (7168, 2048), (36864, 7168))  # N, K
EXPERT_SHAPES = ((4096, 7168), (7168, 2048))
EXPERTS, CHOSEN = 256, 8
TOLERANCE = 4e-3  # bf16 results of the same sums


def codes(*shape: int) -> torch.Tensor:
    """Normally distributed e4m3 values, made in parts because fp32 weights of all experts would not fit."""
    made = torch.empty(*shape, dtype=torch.float8_e4m3fn, device="cuda")
    for part in made.view(-1).split(1 << 27):
        part.copy_(torch.randn(part.shape, device="cuda") * 32)
    return made


def operand(rows: int, width: int) -> Quantized:
    return Quantized(codes(rows, width), torch.rand(rows, width // 128, device="cuda") + 0.5)


def weight(columns: int, width: int, experts: int | None = None) -> Quantized:
    axes = () if experts is None else (experts,)
    scales = torch.rand(*axes, -(-columns // 128), width // 128, device="cuda") + 0.5
    return Quantized(codes(*axes, columns, width), scales)


def projection_cases(peer: Peer) -> Iterator[Case]:
    sizes = [(rows, *shape) for shape in SHAPES for rows in (1024, 2048, 4096)]
    sizes += [(rows, 4096, 7168) for rows in (1, 16, 64, 128, 512)]
    sizes += [(rows, 7168, 16384) for rows in (64, 128)]
    sizes += [(rows, 36864, 7168) for rows in (1, 16, 64)]
    for rows, columns, width in sizes:
        a, b = operand(rows, width), weight(columns, width)

        def ours(a: Quantized = a, b: Quantized = b) -> Sequence[torch.Tensor]:
            return (fp8_gemm(a, *b, backend="cuda"),)

        yield Case(f"FP8 product, {rows} rows, ({columns}, {width})", ours, peer.product(a, b), TOLERANCE)


def prompt_expert_cases(peer: Peer) -> Iterator[Case]:
    """Rows as uniformly random experts take them. Theirs are given padded to multiples of 128, which is not timed."""
    generator = torch.Generator().manual_seed(0)
    for experts, tokens in ((EXPERTS, 4096), (EXPERTS, 8192)):
        for columns, width in EXPERT_SHAPES:
            chosen = torch.randint(0, experts, (tokens * CHOSEN,), generator=generator)
            counts = torch.bincount(chosen, minlength=experts)
            padded = -(-counts // 128) * 128
            starts = padded.cumsum(0) - padded
            rows = torch.cat([start + torch.arange(int(count)) for start, count in zip(starts, counts, strict=True)])
            expert_of_row = torch.full((int(padded.sum()),), -1, dtype=torch.int32)
            expert_of_row[rows] = torch.arange(experts, dtype=torch.int32).repeat_interleave(counts)
            offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int().cuda()
            rows, expert_of_row = rows.cuda(), expert_of_row.cuda()
            a, b = operand(tokens * CHOSEN, width), weight(columns, width, experts)
            spread = Quantized(
                torch.zeros(len(expert_of_row), width, device="cuda").to(a.values.dtype),
                torch.ones(len(expert_of_row), width // 128, device="cuda"),
            )
            spread.values.view(torch.uint8)[rows], spread.scales[rows] = a.values.view(torch.uint8), a.scales

            def ours(a: Quantized = a, b: Quantized = b, offsets: torch.Tensor = offsets) -> Sequence[torch.Tensor]:
                return (grouped_gemm(a, b.values, offsets, b.scales, backend="cuda"),)

            name = f"experts of a prompt, {experts}, {tokens * CHOSEN} rows, ({columns}, {width})"
            yield Case(name, ours, peer.contiguous(spread, b, expert_of_row), TOLERANCE, rows)


def decode_expert_cases(peer: Peer) -> Iterator[Case]:
    """Each token goes to eight random experts. Theirs are given each expert's rows in a tensor of its own."""
    generator = torch.Generator().manual_seed(0)
    room = 64  # rows of an expert's tensor: theirs writes tiles of 64
    for columns, width in EXPERT_SHAPES:
        b = weight(columns, width, EXPERTS)
        for tokens in (1, 8, 64, 128):
            chosen = torch.rand(tokens, EXPERTS, generator=generator).argsort(-1)[:, :CHOSEN].flatten()
            order = chosen.sort(stable=True)
            counts = torch.bincount(chosen, minlength=EXPERTS)
            starts = counts.cumsum(0) - counts
            rows = (order.values * room + torch.arange(len(chosen)) - starts[order.values]).cuda()
            offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int().cuda()
            token_of_row, masked_rows = (order.indices // CHOSEN).int().cuda(), counts.int().cuda()
            a = operand(tokens, width)
            spread = Quantized(codes(EXPERTS * room, width), torch.ones(EXPERTS * room, width // 128, device="cuda"))
            spread.values.view(torch.uint8)[rows] = a.values.view(torch.uint8)[token_of_row]
            spread.scales[rows] = a.scales[token_of_row]
            spread = Quantized(*(x.unflatten(0, (EXPERTS, room)) for x in spread))

            def ours(
                a: Quantized = a,
                b: Quantized = b,
                offsets: torch.Tensor = offsets,
                token_of_row: torch.Tensor = token_of_row,
            ) -> Sequence[torch.Tensor]:
                return (grouped_gemm(a, b.values, offsets, b.scales, sorted_token_ids=token_of_row, backend="cuda"),)

            theirs = peer.masked(spread, b, masked_rows, max(1, tokens * CHOSEN // EXPERTS))
            yield Case(f"experts of {tokens} tokens, ({columns}, {width})", ours, theirs, TOLERANCE, rows)


GROUPS: dict[str, Callable[[Peer], Iterator[Case]]] = {
    "projections": projection_cases,
    "prompt-experts": prompt_expert_cases,
    "decode-experts": decode_expert_cases,
}
