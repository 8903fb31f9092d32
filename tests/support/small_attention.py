"""A program that calls every attention kernel once with small inputs; tests run it under compute-sanitizer."""

import torch

from deepseek_v32.kernels.dense_mla import dense_mla_decode, paged_mla_decode_h16
from deepseek_v32.kernels.registry import preference_of
from deepseek_v32.kernels.sparse_mla_decode import sparse_mla_decode
from deepseek_v32.kernels.sparse_mla_prefill import sparse_mla_prefill


def main() -> None:
    torch.manual_seed(0)
    device = torch.device("cuda")
    records = torch.randint(0, 0x38, (3, 64, 1, 656), dtype=torch.uint8, device=device)  # small finite e4m3 and bf16
    records[..., 512:528] = torch.full((3, 64, 1, 4), 0.5, device=device).view(torch.uint8)
    indices = torch.randint(-1, 192, (2, 1, 320), dtype=torch.int32, device=device)
    kv = torch.randn(192, 1, 576, device=device).bfloat16()
    for heads in (16, 32, 64, 128):
        q = torch.randn(2, heads, 576, device=device).bfloat16()
        results = [
            *sparse_mla_prefill(q, kv, indices, 0.1, backend="cuda"),
            *sparse_mla_prefill(q, records, indices, 0.1, backend="cuda"),
            *sparse_mla_decode(q[:, None], records, indices, 0.1, backend="cuda"),
            *sparse_mla_decode(q[:, None], records, indices, 0.1, backend=preference_of("auto", deterministic=True)),
            *sparse_mla_decode(
                q[:1, None], records, indices[:1], 0.1, backend=preference_of("auto", deterministic=True)
            ),
        ]
        table = torch.tensor([[2, 0, 1], [1, 0, 2]], dtype=torch.int32, device=device)
        lengths = torch.tensor([150, 64], dtype=torch.int32, device=device)
        results += dense_mla_decode(q[:, None], kv.view(3, 64, 1, 576), table, lengths, 0.1, backend="cuda")
        assert all(result.isfinite().all() for result in results)
    nope, rope = (torch.randn(2, 16, width, device=device).bfloat16() for width in (512, 64))
    bounds = torch.tensor([0, 100, 192], dtype=torch.int32, device=device)
    pages = torch.randperm(192, device=device).int()
    ckv, kpe = kv[..., :512].contiguous(), kv[..., 512:].contiguous()
    assert all(
        r.isfinite().all() for r in paged_mla_decode_h16(nope, rope, ckv, kpe, bounds, pages, 0.1, backend="cuda")
    )


if __name__ == "__main__":
    main()
