"""The V3.2 architecture for training, on flat batches of N = B·T tokens. Dense attention is MHA, sparse attention absorbed.

Everything but attention works on [N, ...], so torch.compile sees one shape for all sequence lengths."""

import torch
import torch.nn.functional as F
from torch import nn

from .attention import absorbed_attention, attention_rows, dense_attention, indexer_divergence
from .routing import route
from .shape import HEADS, INDEX, LATENT, NOPE, ROPE, VALUE, Shape, rotate_halves, rotate_interleaved
from .sparse_attention import select


def linear(x, weight):
    return F.linear(x, weight.to(x.dtype))


def rms_norm(x, weight):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * weight).to(x.dtype)


def _matrix(rows: int, columns: int, *, zero: bool = False, std: float | None = None) -> nn.Parameter:
    return nn.Parameter(torch.zeros(rows, columns) if zero else torch.randn(rows, columns) * (std or columns**-0.5))


class Layer(nn.Module):
    def __init__(self, shape: Shape, dense: bool):
        super().__init__()
        self.shape, self.dense = shape, dense
        d = shape.hidden
        self.input_norm = nn.Parameter(torch.ones(d))
        self.q_a = _matrix(shape.q_lora, d)
        self.q_a_norm = nn.Parameter(torch.ones(shape.q_lora))
        self.q_b = _matrix(HEADS * (NOPE + ROPE), shape.q_lora)
        self.kv_a = _matrix(LATENT + ROPE, d)
        self.kv_a_norm = nn.Parameter(torch.ones(LATENT))
        self.kv_b = _matrix(HEADS * (NOPE + VALUE), LATENT)
        self.o = _matrix(d, HEADS * VALUE, zero=True)
        self.index_q = _matrix(shape.index_heads * INDEX, shape.q_lora)
        self.index_k = _matrix(INDEX, d)
        self.index_k_norm = nn.Parameter(torch.ones(INDEX))
        self.index_k_bias = nn.Parameter(torch.zeros(INDEX))
        self.index_weights = _matrix(shape.index_heads, d)
        self.mlp_norm = nn.Parameter(torch.ones(d))
        if dense:
            self.gate, self.up = _matrix(shape.mlp, d), _matrix(shape.mlp, d)
            self.down = _matrix(d, shape.mlp, zero=True)
        else:
            e, w = shape.experts, shape.expert
            self.router = _matrix(e, d)
            self.register_buffer("router_bias", torch.zeros(e))
            self.expert_gate = nn.Parameter(torch.randn(e, w, d) * d**-0.5)
            self.expert_up = nn.Parameter(torch.randn(e, w, d) * d**-0.5)
            self.expert_down = nn.Parameter(torch.zeros(e, d, w))
            self.shared_gate, self.shared_up = _matrix(w, d), _matrix(w, d)
            self.shared_down = _matrix(d, w, zero=True)

    def project(self, x, cos, sin):
        """x [N, D] → h, qr, q [N, H, 192], latent [N, 512], k_rope [N, 64]."""
        h = rms_norm(x, self.input_norm)
        qr = rms_norm(linear(h, self.q_a), self.q_a_norm)
        q = linear(qr, self.q_b).view(-1, HEADS, NOPE + ROPE)
        q = torch.cat((q[..., :NOPE], rotate_interleaved(q[..., NOPE:], cos[:, None], sin[:, None])), -1)
        kv = linear(h, self.kv_a)
        latent = rms_norm(kv[:, :LATENT], self.kv_a_norm)
        k_rope = rotate_interleaved(kv[:, LATENT:], cos, sin)
        return h, qr, q, latent, k_rope

    def expand(self, latent, k_rope):
        """The MHA form: k [N, H, 192], v [N, H, 128]."""
        kv = linear(latent, self.kv_b).view(-1, HEADS, NOPE + VALUE)
        return torch.cat((kv[..., :NOPE], k_rope[:, None].expand(-1, HEADS, -1)), -1), kv[..., NOPE:]

    def index(self, h, qr, cos, sin):
        """The indexer's q [N, H_i, 128], k [N, 128], weights [N, H_i] with both scales included."""
        q = linear(qr, self.index_q).view(-1, self.shape.index_heads, INDEX)
        q = torch.cat((rotate_halves(q[..., :ROPE], cos[:, None], sin[:, None]), q[..., ROPE:]), -1)
        k = F.layer_norm(linear(h, self.index_k).float(), (INDEX,), self.index_k_norm, self.index_k_bias, 1e-6)
        k = torch.cat((rotate_halves(k[:, :ROPE], cos, sin), k[:, ROPE:]), -1).to(q.dtype)
        weights = F.linear(h.float(), self.index_weights) * (self.shape.index_heads**-0.5 * INDEX**-0.5)
        return q, k, weights

    def feed_forward(self, x, attended):
        """x + attention output → residual stream after the MLP, and the experts' load (None in a dense layer)."""
        x = x + linear(attended, self.o)
        h = rms_norm(x, self.mlp_norm)
        if self.dense:
            return x + linear(F.silu(linear(h, self.gate)) * linear(h, self.up), self.down), None
        weights, load = route(h, self.router, self.router_bias, self.shape)
        out = linear(F.silu(linear(h, self.shared_gate)) * linear(h, self.shared_up), self.shared_down)
        # Every expert runs for every token, as one wide MLP: with 8 experts of 128, gathering would cost more.
        e, w, d = self.expert_gate.shape
        hidden = F.silu(linear(h, self.expert_gate.view(e * w, d))) * linear(h, self.expert_up.view(e * w, d))
        hidden = (hidden.view(-1, e, w) * weights[..., None].to(hidden.dtype)).flatten(1)
        return x + out + linear(hidden, self.expert_down.permute(1, 0, 2).reshape(d, e * w)), load


class Draft(nn.Module):
    """The next-token (MTP) layer: from the hidden state at position i and the token at i + 1 to the token at i + 2."""

    def __init__(self, shape: Shape):
        super().__init__()
        d = shape.hidden
        self.enorm, self.hnorm, self.norm = (nn.Parameter(torch.ones(d)) for _ in range(3))
        self.eh = nn.Parameter(torch.cat((0.3 * torch.eye(d), torch.eye(d)), 1))  # of the embedding, then of hidden
        self.layer = Layer(shape, dense=False)

    def combine(self, embedded, hidden):
        """embedded, hidden [N, D] → the layer's input."""
        return linear(torch.cat((rms_norm(embedded, self.enorm), rms_norm(hidden, self.hnorm)), -1), self.eh)


class Model(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embed = _matrix(shape.vocab, shape.hidden, std=0.1)
        self.layers = nn.ModuleList(Layer(shape, i < shape.dense_layers) for i in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.hidden))
        self.head = _matrix(shape.vocab, shape.hidden, std=0.02)
        self.draft = Draft(shape)
        self._compiled: dict = {}

    def compile(self) -> None:
        """Compile the functions of flat tokens. Attention itself is not compiled."""
        for name in ("project", "expand", "index", "feed_forward"):
            self._compiled[name] = torch.compile(getattr(Layer, name), dynamic=False)
        self._compiled["loss"] = torch.compile(_weighted_loss, dynamic=False)
        self._compiled["combine"] = torch.compile(Draft.combine, dynamic=False)

    def start_draft(self) -> None:
        """Begin the draft layer as a copy of the last layer."""
        self.draft.layer.load_state_dict(self.layers[-1].state_dict())
        self.draft.norm.data.copy_(self.norm.data)
        self.draft.hnorm.data.fill_(1.0)

    def _call(self, name: str, layer: nn.Module, *args):
        return self._compiled.get(name, getattr(type(layer), name))(layer, *args)

    def forward(self, tokens, length: int, topk: int | None, tables, sample=None, dtype=torch.bfloat16):
        """tokens [N] of sequences of `length` → hidden states [N, D], expert loads, indexer KL (0 without `sample`).

        topk: tokens that a query attends to; None: all. sample: positions [B, R] within each sequence at which the indexer is
        compared with attention.
        """
        batch = tokens.shape[0] // length
        cos, sin = (t[:length].repeat(batch, 1) for t in tables)
        x = F.embedding(tokens, self.embed).to(dtype)
        loads, divergence = [], torch.zeros((), device=x.device)
        for layer in self.layers:
            x, load, own = self._layer(layer, x, length, topk, cos, sin, sample)
            divergence = divergence + own
            if load is not None:
                loads.append(load)
        return x, loads, divergence

    def draft_forward(self, hidden, tokens, length: int, topk: int | None, tables, sample=None):
        """One pass of the draft layer: hidden [N, D] after the final norm and the tokens [N] one further → the same, for the
        tokens two further, before the head's norm; load and indexer KL."""
        batch = tokens.shape[0] // length
        cos, sin = (t[:length].repeat(batch, 1) for t in tables)
        embedded = F.embedding(tokens, self.embed).to(hidden.dtype).view(batch, length, -1)
        embedded = torch.cat((torch.zeros_like(embedded[:, :1]), embedded[:, 1:]), 1).flatten(
            0, 1
        )  # position 0 has no embedding
        x = self._call("combine", self.draft, embedded, hidden)
        return self._layer(self.draft.layer, x, length, topk, cos, sin, sample)

    def _layer(self, layer: Layer, x, length: int, topk: int | None, cos, sin, sample):
        """(output [N, D], the experts' load or None, indexer KL)."""
        batch = x.shape[0] // length
        divergence = torch.zeros((), device=x.device)
        h, qr, q, latent, k_rope = self._call("project", layer, x, cos, sin)
        scale, index = self.shape.softmax_scale, None
        if topk is not None or sample is not None:
            iq, ik, weights = self._call("index", layer, h.detach(), qr.detach(), cos, sin)
        if topk is not None:
            index = select(iq.detach(), ik.detach(), weights.detach(), length, topk)
        if index is None:
            k, v = self._call("expand", layer, latent, k_rope)
            attended = dense_attention(q, k, v, batch, scale)
        else:
            attended = absorbed_attention(layer, q, latent, k_rope, index, scale)
        if sample is not None:
            with torch.no_grad():
                if index is not None:
                    k, _ = self._call("expand", layer, latent, k_rope)
                target = attention_rows(q, k, sample, batch, scale, index)
            divergence = indexer_divergence(iq, ik, weights, sample, batch, target)
        x, load = self._call("feed_forward", layer, x, attended)
        return x, load, divergence

    def loss(self, x, targets, weights, norm=None):
        norm = self.norm if norm is None else norm
        return self._compiled.get("loss", _weighted_loss)(x, norm, self.head, targets, weights)


def _weighted_loss(x, norm, head, targets, weights):
    logits = F.linear(rms_norm(x, norm), head.to(x.dtype)).float()
    losses = F.cross_entropy(logits, targets, reduction="none")
    return (losses * weights).sum() / weights.sum()
