"""DSA for training: indexer logits, top-k, and attention over the selected tokens with gradients.

On a GPU these are Triton kernels; elsewhere plain torch, which `train_demo.py --check` compares the kernels with.
Rows are flat: N = B·T queries; keys and values are the N latent rows (MQA, absorbed).
"""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # a machine without a GPU runs plain torch
    triton = None


def select_topk(scores: torch.Tensor, k: int) -> torch.Tensor:
    """[T, T] causal scores → [T, k] positions, -1 where a query has fewer than k candidates."""
    values, index = scores.topk(min(k, scores.shape[-1]), dim=-1, sorted=False)
    index = torch.where(values == float("-inf"), -1, index).to(torch.int32)
    if index.shape[-1] < k:
        index = torch.nn.functional.pad(index, (0, k - index.shape[-1]), value=-1)
    return index


@torch.no_grad()
def select(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, length: int, topk: int) -> torch.Tensor:
    """Indexer q [N, H, 128], k [N, 128], weights [N, H] (scales included) → flat row numbers [N, topk], -1 padded."""
    rows = []
    for start in range(0, q.shape[0], length):
        part = slice(start, start + length)
        index = select_topk(index_scores(q[part], k[part], weights[part]), topk)
        rows.append(torch.where(index < 0, -1, index + start))
    return torch.cat(rows)


def index_scores(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """score[t, s] = sum_h weights[t, h] · relu(q[t, h] · k[s]), -inf for s > t. q [T, H, 128], k [T, 128] → fp32 [T, T]."""
    length, heads, _ = q.shape
    if triton is None or not q.is_cuda:
        dots = torch.einsum("thd,sd->hts", q.float(), k.float()).relu_()
        scores = torch.einsum("hts,th->ts", dots, weights.float())
        mask = torch.ones(length, length, dtype=torch.bool, device=q.device).triu_(1)
        return scores.masked_fill_(mask, float("-inf"))
    scores = torch.empty(length, length, dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(length, 64), triton.cdiv(length, 128))
    _index_scores_kernel[grid](
        q.contiguous(), k.contiguous(), weights.float().contiguous(), scores, length, heads, ROWS=64, COLUMNS=128,
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return scores


def sparse_attention(q: torch.Tensor, kv: torch.Tensor, index: torch.Tensor, scale: float) -> torch.Tensor:
    """Absorbed MLA over selected rows. q [N, H, 576], kv [N, 576], index int32 [N, K] → [N, H, 512], differentiable in q and kv."""
    if triton is None or not q.is_cuda:
        return _reference(q, kv, index, scale)
    return _SparseAttention.apply(q, kv, index, scale)


def _reference(q, kv, index, scale):
    gathered = kv[index.clamp_min(0).long()]  # [N, K, 576]
    logits = torch.einsum("nhd,nkd->nhk", q.float(), gathered.float()) * scale
    logits = logits.masked_fill((index < 0)[:, None], float("-inf"))
    return torch.einsum("nhk,nkd->nhd", logits.softmax(-1), gathered[..., :512].float()).to(q.dtype)


class _SparseAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, kv, index, scale):
        q, kv, index = q.contiguous(), kv.contiguous(), index.contiguous()
        out = torch.empty(*q.shape[:2], 512, dtype=q.dtype, device=q.device)
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        _forward_kernel[(q.shape[0],)](
            q, kv, index, out, lse, scale, index.shape[1], BLOCK=32, num_warps=4, num_stages=2
        )
        ctx.save_for_backward(q, kv, index, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad):
        q, kv, index, out, lse = ctx.saved_tensors
        grad = grad.contiguous()
        delta = (grad.float() * out.float()).sum(-1)  # [N, H]
        grad_q = torch.empty_like(q)
        grad_kv = torch.zeros(kv.shape, dtype=torch.float32, device=kv.device)
        _backward_kernel[(q.shape[0],)](
            q, kv, index, grad, lse, delta, grad_q, grad_kv, ctx.scale, index.shape[1], BLOCK=32, num_warps=8, num_stages=1,
        )  # fmt: skip
        return grad_q, grad_kv.to(kv.dtype), None, None


if triton is not None:

    @triton.jit
    def _index_scores_kernel(
        q_ptr, k_ptr, w_ptr, out_ptr, length, heads: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
    ):
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        out = out_ptr + rows.to(tl.int64)[:, None] * length + columns[None, :]
        inside = (rows < length)[:, None] & (columns < length)[None, :]
        if tl.program_id(1) * COLUMNS > tl.program_id(0) * ROWS + ROWS - 1:  # above the diagonal
            tl.store(out, tl.full((ROWS, COLUMNS), float("-inf"), tl.float32), mask=inside)
        else:
            dims = tl.arange(0, 128)
            k = tl.load(k_ptr + columns[None, :] * 128 + dims[:, None], mask=(columns < length)[None, :], other=0.0)
            total = tl.zeros((ROWS, COLUMNS), tl.float32)
            for head in range(heads):
                q = tl.load(
                    q_ptr + (rows[:, None] * heads + head) * 128 + dims[None, :],
                    mask=(rows < length)[:, None],
                    other=0.0,
                )
                w = tl.load(w_ptr + rows * heads + head, mask=rows < length, other=0.0)
                total += tl.maximum(tl.dot(q, k), 0.0) * w[:, None]
            total = tl.where(columns[None, :] <= rows[:, None], total, float("-inf"))
            tl.store(out, total, mask=inside)

    @triton.jit
    def _forward_kernel(q_ptr, kv_ptr, index_ptr, out_ptr, lse_ptr, scale, count: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        heads, latent, rope = tl.arange(0, 16), tl.arange(0, 512), tl.arange(0, 64)
        q_row = q_ptr + row * 16 * 576
        q = tl.load(q_row + heads[:, None] * 576 + latent[None, :])
        q_rope = tl.load(q_row + heads[:, None] * 576 + 512 + rope[None, :])
        best = tl.full((16,), -1e30, tl.float32)
        total = tl.zeros((16,), tl.float32)
        acc = tl.zeros((16, 512), tl.float32)
        for start in range(0, count, BLOCK):
            index = tl.load(index_ptr + row * count + start + tl.arange(0, BLOCK))
            valid = index >= 0
            kv_row = kv_ptr + index.to(tl.int64)[:, None] * 576
            kv = tl.load(kv_row + latent[None, :], mask=valid[:, None], other=0.0)
            k_rope = tl.load(kv_row + 512 + rope[None, :], mask=valid[:, None], other=0.0)
            logits = (tl.dot(q, tl.trans(kv)) + tl.dot(q_rope, tl.trans(k_rope))) * scale
            logits = tl.where(valid[None, :], logits, -1e30)
            new_best = tl.maximum(best, tl.max(logits, 1))
            p = tl.where(valid[None, :], tl.exp(logits - new_best[:, None]), 0.0)
            shrink = tl.exp(best - new_best)
            total = total * shrink + tl.sum(p, 1)
            acc = acc * shrink[:, None] + tl.dot(p.to(kv.dtype), kv)
            best = new_best
        tl.store(
            out_ptr + row * 16 * 512 + heads[:, None] * 512 + latent[None, :],
            (acc / total[:, None]).to(out_ptr.dtype.element_ty),
        )
        tl.store(lse_ptr + row * 16 + heads, best + tl.log(total))

    @triton.jit
    def _backward_kernel(
        q_ptr, kv_ptr, index_ptr, grad_ptr, lse_ptr, delta_ptr, grad_q_ptr, grad_kv_ptr, scale,
        count: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        heads, latent, rope = tl.arange(0, 16), tl.arange(0, 512), tl.arange(0, 64)
        q_row = q_ptr + row * 16 * 576
        q = tl.load(q_row + heads[:, None] * 576 + latent[None, :])
        q_rope = tl.load(q_row + heads[:, None] * 576 + 512 + rope[None, :])
        grad = tl.load(grad_ptr + row * 16 * 512 + heads[:, None] * 512 + latent[None, :])
        lse = tl.load(lse_ptr + row * 16 + heads)
        delta = tl.load(delta_ptr + row * 16 + heads)
        grad_q = tl.zeros((16, 512), tl.float32)
        grad_q_rope = tl.zeros((16, 64), tl.float32)
        for start in range(0, count, BLOCK):
            index = tl.load(index_ptr + row * count + start + tl.arange(0, BLOCK))
            valid = index >= 0
            offsets = index.to(tl.int64)[:, None] * 576
            kv = tl.load(kv_ptr + offsets + latent[None, :], mask=valid[:, None], other=0.0)
            k_rope = tl.load(kv_ptr + offsets + 512 + rope[None, :], mask=valid[:, None], other=0.0)
            logits = (tl.dot(q, tl.trans(kv)) + tl.dot(q_rope, tl.trans(k_rope))) * scale
            p = tl.where(valid[None, :], tl.exp(logits - lse[:, None]), 0.0)
            grad_logits = (p * (tl.dot(grad, tl.trans(kv)) - delta[:, None]) * scale).to(kv.dtype)
            grad_q += tl.dot(grad_logits, kv)
            grad_q_rope += tl.dot(grad_logits, k_rope)
            grad_kv = tl.dot(tl.trans(p.to(kv.dtype)), grad) + tl.dot(tl.trans(grad_logits), q)
            grad_k_rope = tl.dot(tl.trans(grad_logits), q_rope)
            tl.atomic_add(grad_kv_ptr + offsets + latent[None, :], grad_kv, mask=valid[:, None], sem="relaxed")
            tl.atomic_add(grad_kv_ptr + offsets + 512 + rope[None, :], grad_k_rope, mask=valid[:, None], sem="relaxed")
        out = grad_q_ptr + row * 16 * 576 + heads[:, None] * 576
        tl.store(out + latent[None, :], grad_q.to(grad_q_ptr.dtype.element_ty))
        tl.store(out + 512 + rope[None, :], grad_q_rope.to(grad_q_ptr.dtype.element_ty))
