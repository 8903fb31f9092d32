"""What structured outputs cost: decode speed of the demo with and without a schema, and the time of a mask.

    python scripts/bench/grammar.py                 # 32 sequences
    python scripts/bench/grammar.py --model DIR --device cuda --sequences 32

The runs with and without a schema alternate, and have no drafts, which a request with a schema does not get; a third kind may write
any text, as without a grammar, so that it costs only the masks. Each is greedy (0) and at temperature 1. The numbers are the
medians of the times of their steps. Ends in one JSON line.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from deepseek_v32.inference import LLM, SamplingParams, StructuredOutputsParams
from deepseek_v32.inference.text.grammar import GrammarCompiler, Mask

SCHEMA = {  # no answer can end within the measurement
    "type": "array",
    "minItems": 1000,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "age": {"type": "integer"},
            "tags": {"enum": ["a", "bb"]},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    },
}

ANY_TEXT = r"(?s:.{4000,})"  # longer than the measurement


def step_seconds(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> list[float]:
    """Time the steps that hold only decodes, until all sequences have their tokens."""
    for prompt in prompts:
        llm.engine.add_request(prompt, params)
    while len(llm.engine.scheduler.waiting) or any(
        request.output_count == 0 for request in llm.engine.scheduler.running
    ):
        llm.engine.step()
    times = []
    while llm.engine.has_work:
        began = time.perf_counter()
        llm.engine.step()
        times.append(time.perf_counter() - began)
    return times[2:-2]


def mask_microseconds(llm: LLM) -> float:
    """Median over the tokens of a text of the schema's form."""
    tokenizer = llm.tokenizer
    assert tokenizer is not None
    grammar = GrammarCompiler(tokenizer, llm.config.vocab_size, sorted(llm.engine.requests.eos_ids)).compile(
        StructuredOutputsParams(json=SCHEMA)
    )
    tokens = tokenizer.encode(
        json.dumps([{"name": f"Name {i} of many", "age": i, "tags": "bb"} for i in range(20)])[:-1]
    )
    [mask] = Mask.rows(np.empty((1, -(-llm.config.vocab_size // 32)), dtype=np.uint32))
    times = []
    for count in range(len(tokens)):
        began = time.perf_counter()
        grammar.write_mask(tokens[:count], 0, mask, may_end=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def main(
    model: Annotated[Path | None, typer.Option(help="Checkpoint directory; default: the demo.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    sequences: int = 32,
    tokens: int = 96,
    rounds: int = 3,
) -> None:
    llm = LLM(model, device=device, max_model_len=1024, speculative_tokens=0)
    random = np.random.default_rng(0)
    prompts = random.integers(10, llm.config.vocab_size - 10, (sequences, 64)).tolist()
    forms = {
        "plain": None,
        "schema": StructuredOutputsParams(json=SCHEMA),
        "text": StructuredOutputsParams(regex=ANY_TEXT),
    }
    kinds = {
        f"{name}_{temperature}": SamplingParams(
            temperature=temperature, max_tokens=tokens, seed=1, structured_outputs=form, ignore_eos=form is None
        )
        for temperature in (0, 1)
        for name, form in forms.items()
    }
    for params in kinds.values():  # to warm up
        step_seconds(llm, prompts, params)
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, params in kinds.items():
            times[kind] += step_seconds(llm, prompts, params)
    medians = {kind: statistics.median(values) * 1e3 for kind, values in times.items()}
    report = {
        "device": str(llm.device), "threads": torch.get_num_threads(), "sequences": sequences, "vocabulary": llm.config.vocab_size,
        **{f"{kind}_step_ms": round(median, 3) for kind, median in medians.items()},
        **{
            f"{name}_{temperature}_cost": round(medians[f"{name}_{temperature}"] / medians[f"plain_{temperature}"] - 1, 4)
            for temperature in (0, 1)
            for name in ("schema", "text")
        },
        "mask_us": round(mask_microseconds(llm), 1),
    }  # fmt: skip
    print(json.dumps(report))


if __name__ == "__main__":
    typer.run(main)
