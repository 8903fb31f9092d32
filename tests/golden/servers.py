"""A server in a thread of this process, so that a seeded bug is in it, and what the probe sees of it."""

import gc
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.golden import Item
from deepseek_v32.inference.conformance.probe import Client, Observation, Probe
from deepseek_v32.inference.engine.scheduling.pace import UNBOUNDED, StepTimes
from deepseek_v32.inference.server.api.http_server import make_server
from deepseek_v32.inference.server.app import create_app
from deepseek_v32.inference.server.service.service import Service

SIZES: dict[str, Any] = {"max_model_len": 4096, "page_count": 256}
# Without drafts: how many there are depends on measured times, and on them what a bug of the caches does. Prompts are cut into
# chunks of this one size, as other engines cut them, and not by measured times: what bugs of chunks do depends on their sizes.
PLAIN = SIZES | {"speculative_tokens": 0, "max_batch_tokens": 2048}


@contextmanager
def serving(llm: LLM, step_times: StepTimes | None = None) -> Iterator[str]:
    """The base address of OpenAI's API of this model. step_times: as Service's."""
    app = create_app(Service(llm, step_times=step_times))
    server = make_server(app, "127.0.0.1", 0, drain=1)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the server has ended")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join()


def observe(model: Path, items: Sequence[Item], precision: Any, **options: Any) -> Observation:
    """The probe's view of a new engine with the checkpoint, which decodes a token at a time and measures no times."""
    llm = LLM(model, device="cpu", precision=precision, **PLAIN | options)
    try:
        with serving(llm, UNBOUNDED) as address:
            return Probe(Client(address, timeout=600)).run(items)
    finally:
        del llm
        gc.collect()
