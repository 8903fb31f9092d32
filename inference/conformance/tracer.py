"""Records what the engine computes, stage by stage, in any schedule: whole prompts, chunks, decodes, drafts, reused pages.

A Tracer observes the engine's runner and sorts the rows of each step by request and position; a row that is computed again
replaces the older one. Latents and index keys are read back from the cache after each step, for the whole context: later tokens
will read them.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from math import isfinite
from typing import Any, cast

import torch
import torch.nn.functional as F

from ...kernels.cache_write import gather_index_keys, gather_latents
from ...kernels.errors import ArgumentError
from ...kernels.hadamard import hadamard_transform
from ...kernels.types import Quantized
from ...model.config import FP8_BLOCK, ModelConfig
from ...model.metadata import LayerCache, Selection, context_slots
from ...model.stages import Rows, Values, traced
from ...model.transformer import Transformer
from ..engine.engine import Engine
from ..engine.running.inputs import Inputs
from ..engine.running.observer import Plan, StepObserver
from ..engine.running.runner import Runner
from ..engine.running.scoring import Text, prompt_steps, raise_observed
from ..engine.sampling.sampler import draft_noise
from ..engine.scheduling.batch import Batch
from ..engine.step import Choices
from ..trace import MTP_NAMES, Trace, describe_rows, full_name

Part = tuple[torch.Tensor, torch.Tensor]  # positions int64 [n], rows [n, …]


class Tracer(StepObserver):
    """Records every step of a runner that it observes."""

    by_layer = True

    def __init__(self, runner: Runner, config: ModelConfig, layers: Iterable[int] | None, forced: bool = False) -> None:
        """layers: None: all. forced: the text is given, so that the MTP layer can follow it."""
        assert isinstance(runner.model, Transformer)
        self.runner, self.model, self.config = runner, runner.model, config
        self.layers = None if layers is None else frozenset(layers)
        self.forced = forced
        self._parts: dict[int, dict[str, list[Part]]] = {}  # by request id and stage
        self._owners = self._positions = torch.empty(0, dtype=torch.int64)  # [T] of the step: request ids and positions
        self._recording = True

    @contextmanager
    def step(self, batch: Batch, plan: Plan, inputs: Inputs) -> Iterator[Inputs]:
        owners = [request.id for request in batch.requests]
        self._owners = torch.tensor(owners).repeat_interleave(torch.tensor(batch.counts))
        self._positions = inputs.positions.cpu()
        report = inputs.metadata.on_selection

        def select(layer: int, rows: torch.Tensor, selection: Selection) -> None:
            if self._wants(layer):
                self._add("selection", layer, rows, selection.positions)
            if report is not None:
                report(layer, rows, selection)

        self._recording = True
        with traced(self._stage):
            yield inputs._replace(metadata=replace(inputs.metadata, on_selection=select))
        self._read_caches(batch, range(self.config.num_hidden_layers))

    @contextmanager
    def draft(self, batch: Batch) -> Iterator[None]:
        """Record the draft layer's first pass, over the rows of the step."""
        self._recording = True
        with traced(self._stage):
            yield
        self._read_caches(batch, [self.config.num_hidden_layers])

    def _wants(self, layer: int | None) -> bool:
        return layer is None or self.layers is None or layer in self.layers

    def _stage(self, name: str, layer: int | None, rows: Rows | None, values: Values) -> None:
        if not self._recording or not self._wants(layer) or values is None:
            return
        if not isinstance(values, torch.Tensor | Quantized):
            values = values()
        if isinstance(values, Quantized):
            if name == "index_query":
                self._add("index_query_codes", layer, rows, values.values.view(torch.uint8))
                self._add("index_query_scales", layer, rows, values.scales[..., 0])
            values = dequantized(values)
            if name == "index_query":
                values = untransformed(values)
        self._add(name, layer, rows, values)
        # Further passes make drafts of drafts, whose rows are no rows of the step.
        self._recording = name != "mtp_logits"

    def _add(self, name: str, layer: int | None, rows: Rows | None, values: torch.Tensor) -> None:
        owners, positions = self._owners, self._positions
        if rows is not None:
            rows = rows.cpu() if isinstance(rows, torch.Tensor) else rows
            owners, positions = owners[rows], positions[rows]
        values = values.detach().to("cpu", torch.float32 if values.is_floating_point() else values.dtype, copy=True)
        if name == "selection":
            values = ascending(values)
        if name == "index_scores":  # kernels leave anything after a token's own position
            values = values.masked_fill(torch.arange(values.shape[1]) > positions[:, None], -torch.inf)
        for owner in owners.unique().tolist():
            own = owners == owner
            self._store(owner, full_name(name, layer)).append((positions[own], values[own]))

    def _store(self, owner: int, name: str) -> list[Part]:
        return self._parts.setdefault(owner, {}).setdefault(name, [])

    def _read_caches(self, batch: Batch, layers: Iterable[int]) -> None:
        """The context of each request of the step, as the caches hold it."""
        for request, start, count in zip(batch.requests, batch.starts, batch.counts, strict=True):
            pages = torch.tensor(request.cache.pages, dtype=torch.int32, device=self.runner.device)
            slots = context_slots(pages, start + count)
            for layer in filter(self._wants, layers):
                for name, values in read_cache(self.runner.caches[layer], slots, self.config).items():
                    parts = self._store(request.id, full_name(name, layer))
                    parts[:] = [(torch.arange(len(slots)), values.cpu())]

    @property
    def requests(self) -> dict[int, int]:
        """Return the number of computed tokens of each request, by id."""
        return {id: 1 + max(int(rows.max()) for rows, _ in parts["tokens"]) for id, parts in self._parts.items()}

    def trace(self, request_id: int, tokens: int) -> Trace:
        """Return the stages of a request's first `tokens` tokens."""
        assembled: dict[str, torch.Tensor] = {}
        partial: dict[str, list[list[int]]] = {}
        for name, parts in self._parts.get(request_id, {}).items():
            is_mtp = name in MTP_NAMES or name.startswith(full_name("", self.config.num_hidden_layers))
            length = tokens - (self.forced and is_mtp)  # the token after the last is not known
            values, present = assemble(name, parts, length, tokens)
            if present.any():
                assembled[name] = values
            if not present.all():
                partial[name] = describe_rows(present)
        router_order(assembled)
        self._expand(assembled)
        config = {
            name: None if isinstance(value, float) and not isfinite(value) else value
            for name, value in asdict(self.config).items()
        }
        given = {"precision": self.model.compute.precision, "config": config}
        return Trace(assembled, {**given, "rows": partial, "versions": versions()})

    def forget(self, request_id: int) -> None:
        self._parts.pop(request_id, None)

    def _expand(self, stages: dict[str, torch.Tensor]) -> None:
        """Add each head's keys and values, which the absorbed form of attention does not compute."""
        blocks = [*self.model.layers, *([] if self.model.mtp is None else [self.model.mtp.block])]
        for layer, block in enumerate(blocks):
            latent = stages.get(full_name("latent", layer))
            if latent is not None:
                compute = self.model.compute
                with torch.inference_mode():
                    keys, values = cast(Any, block).self_attn.kv_b_proj(latent.to(compute.device, compute.dtype))
                stages[full_name("key_nope", layer)] = keys.float().cpu()
                stages[full_name("value", layer)] = values.float().cpu()


@contextmanager
def tracing(engine: Engine, layers: Iterable[int] | None = None, forced: bool = False) -> Iterator[Tracer]:
    """While it is open, the engine's steps are recorded. ValueError on several ranks, and for a model without stages."""
    runner = engine.runner
    if not isinstance(runner, Runner) or not isinstance(runner.model, Transformer):
        raise ValueError(
            f"the engine runs a {type(runner).__name__}; expected a model on one rank: trace without torchrun"
        )
    last = engine.config.num_hidden_layers + (runner.max_draft_tokens > 0) - 1
    layers = None if layers is None else list(layers)
    for layer in layers or ():
        if not 0 <= layer <= last:
            raise ArgumentError("layers", layer, f"numbers from 0 to {last}", "has")
    engine.drain()
    tracer = Tracer(runner, engine.config, layers, forced)
    with runner.watched_by(tracer):
        try:
            yield tracer
        finally:
            engine.drain()


def trace_prompts(
    engine: Engine,
    prompts: Iterable[Sequence[int]],
    layers: Iterable[int] | None = None,
    chunk: int | None = None,
) -> Iterator[Trace]:
    """Every stage of a forward pass over each prompt's tokens, in their order; `chunk`, or max_batch_tokens, of them in a step."""
    size = engine.limits.max_batch_tokens if chunk is None else chunk
    if size < 1:
        raise ValueError(f"chunk is {size}; expected at least 1")
    requests = [engine.requests.from_tokens(prompt, min_new_tokens=0) for prompt in prompts]
    texts = [Text(request, len(request.tokens)) for request in requests]
    following: list[int] = []  # the text's token after each row of the step; 0 after the last one

    def take(logits: torch.Tensor, tokens: Sequence[int]) -> None:
        following.extend(tokens)

    with tracing(engine, layers, forced=True) as tracer:
        drafts = 0 if engine.runner.max_draft_tokens else None  # 0: with the stages of the draft layer
        with closing(prompt_steps(engine, texts, size, take, drafts)) as steps:
            for step, in_step in steps:
                if drafts is not None:
                    zeros = torch.zeros(len(step.requests), dtype=torch.int64, device=step.logits.device)
                    noise = draft_noise(step.requests, zeros.device)
                    step.draft(Choices(torch.tensor(following, device=zeros.device), zeros, noise))
                following.clear()
                for text in sorted(in_step, key=lambda text: text.request.id):
                    raise_observed(engine, text.request)
                    if not text.remaining:
                        yield tracer.trace(text.request.id, text.count)
                        tracer.forget(text.request.id)


def dequantized(values: Quantized) -> torch.Tensor:
    """FP8 values [..., D] with their scales -> fp32."""
    width = values.values.shape[-1]
    return values.values.float() * values.scales.repeat_interleave(FP8_BLOCK, -1)[..., :width]


def untransformed(x: torch.Tensor) -> torch.Tensor:
    """The Hadamard transform undone, fp32: it is its own inverse."""
    return hadamard_transform(x.float(), x.shape[-1] ** -0.5, backend="reference")


def ascending(ids: torch.Tensor) -> torch.Tensor:
    """Sets of ids int [R, K], -1 for none -> int32, each in ascending order, then -1."""
    last = torch.iinfo(torch.int32).max
    ordered = torch.where(ids < 0, last, ids).int().sort(-1).values
    return torch.where(ordered == last, -1, ordered)


def read_cache(cache: LayerCache, slots: torch.Tensor, config: ModelConfig) -> dict[str, torch.Tensor]:
    """The entries of some slots int64 [S]: as numbers, fp32, and as bytes."""
    entries = gather_latents(cache.latent, slots, config.kv_lora_rank, torch.float32, backend="reference")
    keys, scales = gather_index_keys(cache.index, slots, backend="reference")
    rows = cache.latent.view(-1, cache.latent.shape[-1])[slots].contiguous()
    record = keys.contiguous().view(torch.uint8)
    plain = keys.float()
    if scales is not None:
        plain = untransformed(plain * scales[:, None])
        record = torch.cat((record, scales[:, None].contiguous().view(torch.uint8)), 1)
    latent, rope = entries.split((config.kv_lora_rank, config.qk_rope_head_dim), 1)
    latents = {"latent": latent, "key_rope": rope, "latent_record": rows.view(torch.uint8)}
    return {**latents, "index_key": plain, "index_record": record}


def assemble(name: str, parts: Sequence[Part], length: int, context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows by position -> [length, …], and which of them there are. Missing rows hold NaN, -1 or 255."""
    plain = name.rpartition(".")[2]
    fill: float = {"index_scores": -torch.inf, "selection": -1}.get(plain, torch.nan)
    width = (
        context if plain == "index_scores" else max(values.shape[1] if values.dim() > 1 else 0 for _, values in parts)
    )
    sample = parts[0][1]
    shape = (length, *((width,) if sample.dim() > 1 else ()), *sample.shape[2:])
    missing = fill if sample.is_floating_point() else 255 if sample.dtype == torch.uint8 else -1
    out, present = torch.full(shape, missing, dtype=sample.dtype), torch.zeros(length, dtype=torch.bool)
    for positions, values in parts:
        inside = positions < length
        rows = values[inside]
        if rows.dim() > 1 and rows.shape[1] != width:
            pad = F.pad(rows, (0, 0) * (rows.dim() - 2) + (0, max(width - rows.shape[1], 0)), value=missing)
            rows = pad[:, :width]
        out[positions[inside]] = rows
        present[positions[inside]] = True
    if plain == "selection":
        out = out[:, : max(int((out >= 0).sum(1).max()), 1)]
    return out, present


def router_order(stages: dict[str, torch.Tensor]) -> None:
    """Sort each token's experts, and their weights with them."""
    for name in [name for name in stages if name.endswith("router_choice")]:
        ordered, by = stages[name].sort(1)
        stages[name] = ordered.int()
        weights = name.replace("router_choice", "router_weights")
        stages[weights] = stages[weights].gather(1, by)


def versions() -> dict[str, str]:
    python = ".".join(map(str, sys.version_info[:3]))
    return {"python": python, "torch": torch.__version__, "deepseek-v32": version("deepseek-v32")}
