"""Other clients of a server, so that the probe's requests are computed in batches with theirs."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.probe import Client

PROMPTS, ANSWER = (20, 200), 64  # tokens
VOCABULARY = range(10, 4000)


@contextmanager
def neighbours(llm: LLM, address: str, count: int) -> Iterator[list[int]]:
    """Keep `count` requests running until the end of the context. Yields the number that ran, at regular intervals."""
    ended = threading.Event()
    running: list[int] = []

    def ask(seed: int) -> None:
        client, numbers = Client(address, timeout=600), random.Random(seed)
        while not ended.is_set():
            prompt = [numbers.choice(VOCABULARY) for _ in range(numbers.randint(*PROMPTS))]
            client.complete(prompt, ANSWER, with_logprobs=False)

    def watch() -> None:
        while not ended.wait(0.02):
            running.append(len(llm.engine.scheduler.running))

    with ThreadPoolExecutor(count + 1) as pool:
        asking = [pool.submit(ask, seed) for seed in range(count)]
        pool.submit(watch)
        try:
            while count and max(running, default=0) < count * 3 // 4 and not any(each.done() for each in asking):
                time.sleep(0.02)
            yield running
        finally:
            ended.set()
    for each in asking:
        each.result()
