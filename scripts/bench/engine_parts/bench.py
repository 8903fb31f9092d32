"""Decode steps and prompts of a whole engine, timed on the host."""

import random
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.engine.scheduling.pages import ROOT
from deepseek_v32.model.metadata import PAGE_SIZE

from .profiling import kernel_times, summarise

WARM_UP = 6  # steps before the clock starts: the first ones capture graphs
PROFILED = 4  # decode steps under the profiler


class Decode(NamedTuple):
    """`batch` sequences whose contexts end at `context` tokens."""

    batch: int
    context: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.context}"


class Bench:
    """One engine, on which cases are measured one after the other."""

    def __init__(self, llm: LLM, steps: int, kernels: int) -> None:
        """steps: decode steps that are timed. kernels: how many kernels to list; 0 does not profile."""
        self.llm, self.engine = llm, llm.engine
        self.steps = steps
        self.kernels = kernels if llm.device.type == "cuda" else 0
        self.rng = random.Random(0)

    def fitting(self, case: Decode) -> Decode:
        """The case with as many of its sequences as there are pages for."""
        pages = -(-case.context // PAGE_SIZE)
        limits = self.llm.limits
        most = min(limits.page_count // pages * limits.data_ranks, limits.max_sequences)
        return case if case.batch <= most else Decode(most, case.context)

    def decode(self, case: Decode) -> dict[str, Any]:
        """Time `steps` decode steps of the whole batch."""
        untimed = WARM_UP + (PROFILED if self.kernels else 0)
        start = (case.context - self.steps - untimed) // PAGE_SIZE * PAGE_SIZE
        if start <= 0:
            raise ValueError(
                f"--decode is {case}; expected a context of more than --steps {self.steps} and {untimed} tokens"
            )
        params = SamplingParams(temperature=0, max_tokens=case.context - start, ignore_eos=True)
        prompts = [self.cached_prompt(start, number) for number in range(case.batch)]
        requests = [self.engine.add_request([*prompt, 7], params) for prompt in prompts]
        while any(request.output_count < 2 for request in requests):  # until all are admitted and decode
            self.step()
        for _ in range(WARM_UP - 2):
            self.step()
        began = time.perf_counter()
        for _ in range(self.steps):
            assert self.step() == case.batch, "a step that was not all decodes"
        seconds = time.perf_counter() - began
        result: dict[str, Any] = {
            **case._asdict(),
            "step_ms": 1e3 * seconds / self.steps,
            "tokens_per_second": case.batch * self.steps / seconds,
        }
        if self.kernels:
            times = kernel_times(lambda: [self.step() for _ in range(PROFILED)], PROFILED)
            result["profile"] = summarise(times, self.kernels)
        self.cancel(request.id for request in requests)
        return result

    def prefill(self, length: int) -> dict[str, Any]:
        """Time one prompt from its arrival to its first token."""
        params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)

        def run() -> None:
            [completion] = self.llm.generate([self.random_tokens(length)], params)
            assert completion.finish_reason == "length", completion.error

        began = time.perf_counter()
        run()
        seconds = time.perf_counter() - began
        result: dict[str, Any] = {
            "prompt": length,
            "time_to_first_token": seconds,
            "tokens_per_second": length / seconds,
        }
        if self.kernels:
            result["profile"] = summarise(kernel_times(run, 1), self.kernels)
        self.forget_pages()
        return result

    def step(self) -> int:
        """Run one step; the number of tokens that it brought."""
        deltas = self.engine.step()
        failed = [delta.completion.error for delta in deltas if delta.completion and delta.completion.error]
        if failed:
            raise SystemExit(f"a request failed: {failed[0]}")
        return sum(len(delta.token_ids) for delta in deltas)

    def cancel(self, ids: Iterable[int]) -> None:
        for id in ids:
            self.engine.abort(id)
        while self.engine.has_work:
            self.engine.step()
        self.forget_pages()

    def forget_pages(self) -> None:
        for pool in self.engine.scheduler.pools:
            pool.clear()

    def random_tokens(self, count: int) -> list[int]:
        return self.rng.choices(range(3, self.llm.config.vocab_size), k=count)

    def cached_prompt(self, length: int, number: int) -> list[int]:
        """A random prompt whose pages the engine takes for computed; their contents are the random cache entries.

        number: of the sequence. Ranks that divide the sequences hold them in turn.
        """
        pools, tokens = self.engine.scheduler.pools, self.random_tokens(length)
        pool = pools[number % len(pools)]
        pages, prefix_id = pool.allocate(length // PAGE_SIZE), ROOT
        for number, page in enumerate(pages):
            prefix_id = pool.register(page, prefix_id, tokens[number * PAGE_SIZE : (number + 1) * PAGE_SIZE])
        pool.release(pages)
        return tokens
