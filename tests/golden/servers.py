"""A server in a thread of this process, so that a seeded bug is in it, and what the probe sees of it."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.golden import Item
from deepseek_v32.inference.conformance.probe import Client, Observation, Probe
from deepseek_v32.inference.engine.scheduling.pace import UNBOUNDED, StepTimes
from deepseek_v32.inference.server.service.service import Service
from support import server

SIZES: dict[str, Any] = {"max_model_len": 4096, "page_count": 256}
# Without drafts: how many there are depends on measured times, and on them what a bug of the caches does. Prompts are cut into
# chunks of this one size, as other engines cut them, and not by measured times: what bugs of chunks do depends on their sizes.
PLAIN = SIZES | {"speculative_tokens": 0, "max_batch_tokens": 2048}


@contextmanager
def serving(llm: LLM, step_times: StepTimes | None = None) -> Iterator[str]:
    """The base address of OpenAI's API of this model. step_times: as Service's."""
    with server.serving(Service(llm, step_times=step_times)) as running:
        yield f"{running.url}/v1"


def observe(model: Path, items: Sequence[Item], precision: Any, **options: Any) -> Observation:
    """The probe's view of a new engine with the checkpoint, which decodes a token at a time and measures no times."""
    llm = LLM(model, device="cpu", precision=precision, **PLAIN | options)
    try:
        with serving(llm, UNBOUNDED) as address:
            return Probe(Client(address, timeout=600)).run(items)
    finally:
        del llm
        gc.collect()
