"""What speculative decoding costs and brings: steps that verify drafts, and the passes of the MTP layer that make them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from deepseek_v32.inference.engine.running.decode_graph import DecodeGraphs
from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.metadata import LayerCache
from deepseek_v32.model.transformer import Transformer

from .steps import PAGES, Step, make_request, microseconds

# Tokens a step for 0, 1, 2, … drafts of the released model: ATOM on GSM8K, acceptance 0.956 / 0.702 / 0.360 by position.
TOKENS_A_STEP = (1.0, 1.956, 2.658, 3.018)


def measure_speculation(
    model: Transformer,
    caches: list[LayerCache],
    verified: Sequence[int],
    batches: Sequence[int],
    contexts: Sequence[int],
) -> list[dict[str, Any]]:
    """Print a table, and return it: one entry for each batch and context.

    `layer`: microseconds of one MoE layer for 1 token a sequence, then for each of `verified`. `mtp`: the same of the MTP
    layer with
    the head of one row a sequence, over as many tokens. `head`: the same of the main model's norm and head, for as many rows.
    `speed`: tokens a second over plain decoding's, where the acceptance is published.
    """
    generator = torch.Generator().manual_seed(0)
    tokens, results = (1, *verified), []
    print("microseconds; rows: tokens a sequence; speed: tokens a second over plain decoding, computed for 61 layers")
    print(f"{'':22} {'rows':>4} {'layer':>9} {'over 1':>7} {'head':>8} {'MTP+head':>9} {'step':>9} {'speed':>6}")
    for context in contexts:
        for size in batches:
            found: dict[str, list[float]] = {"layer": [], "head": [], "mtp": []}
            for rows in tokens:
                batch = verification(size, rows, context, generator)
                for name, value in zip(found, _measure(model, caches, batch, context), strict=True):
                    found[name].append(round(value, 1))
                torch.cuda.empty_cache()
            steps = [step_time(found, i, rows - 1) for i, rows in enumerate(tokens)]
            speeds = [
                round(TOKENS_A_STEP[rows - 1] * steps[0] / step, 3) if rows <= len(TOKENS_A_STEP) else None
                for rows, step in zip(tokens, steps, strict=True)
            ]
            for i, rows in enumerate(tokens):
                layer, head, mtp = (found[name][i] for name in ("layer", "head", "mtp"))
                speed = "" if speeds[i] is None else f"{speeds[i]:.2f}"
                name = f"B={size}, context {context}" if i == 0 else ""
                ratio = layer / found["layer"][0]
                print(
                    f"{name:22} {rows:4} {layer:9.1f} {ratio:7.2f} {head:8.1f} {mtp:9.1f} {steps[i]:9.0f} {speed:>6}",
                    flush=True,
                )
            results.append(
                {"batch": size, "context": context, "rows": list(tokens), **found, "step": steps, "speed": speeds}
            )
    return results


def verification(size: int, rows: int, context: int, generator: torch.Generator) -> Batch:
    """A step in which each of `size` sequences has one token and rows - 1 drafts."""
    start = context - rows
    plain = Batch.of([(make_request(i, start, 1, generator), 1) for i in range(size)])
    if rows == 1:
        return plain
    counts, drafts = (rows,) * size, (rows - 1,) * size
    return replace(plain, counts=counts, logit_counts=counts, draft_counts=drafts, draft_rows=tuple(range(size)))


def step_time(found: dict[str, list[float]], index: int, drafts: int) -> float:
    """Microseconds of a step of the released model: 61 layers, all taken as MoE layers, the head, and the passes of the MTP layer.

    The first pass has all rows of the step, the others have one row a sequence. Sampling is left out.
    """
    time = ModelConfig().num_hidden_layers * found["layer"][index] + found["head"][index]
    if drafts:
        time += found["mtp"][index] + (drafts - 1) * found["mtp"][0]
    return round(time, 1)


@torch.inference_mode()
def _measure(model: Transformer, caches: list[LayerCache], batch: Batch, context: int) -> tuple[float, float, float]:
    """(MoE layer, norm and head, MTP layer with the head of one row a sequence)."""
    step = Step(model, caches, batch, context)
    layer = step.layer_time(step.runner(len(model.layers)), step.runner(1))
    rows, device = batch.tokens, model.compute.device
    h = torch.randn(rows, model.config.hidden_size, device=device, dtype=model.compute.dtype)
    head = microseconds(lambda: model.lm_head.logits(model.norm(h)))

    sizes = (PAGES, len(batch.requests), context, model.config.index_topk, device, (), rows)
    graphs = DecodeGraphs(model.forward, caches, *sizes)
    graphs.staged.drafts.random_(3, 100_000)
    inputs = graphs.run(batch).inputs
    padded = torch.randn(inputs.batch, model.config.hidden_size, device=device, dtype=model.compute.dtype)
    following = torch.randint(3, 100_000, (inputs.batch,), device=device)
    last = torch.arange(len(batch.requests), device=device) * batch.counts[0]

    def draft() -> torch.Tensor:
        _, positions, metadata, _ = inputs.read()
        return model.draft(following, padded, positions, replace(metadata, logit_rows=last), caches[-1])[0]

    draft()
    return layer, head, microseconds(graphs.capture(draft))
