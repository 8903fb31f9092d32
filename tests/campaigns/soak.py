"""Campaign: many clients of one service with --check-cache on. Answers stay right, requests end, pages return, memory stays flat.

Each client asks one thing after the other: greedy questions about conversations of the demo, which share their beginnings; sampled
answers to random tokens; requests that it leaves after some tokens; and prompts to score. There are so few pages that requests are
preempted. In exact precision every greedy answer is compared with the one that the engine gives to the same prompt on its own,
without checks and reuse. In other precisions the rest of the batch may change a token: differing answers are only counted.
"""

import asyncio
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.server.service.service import Service
from demo_model.dialogues import write
from support.pages import check_pool

LENGTHS = (200, 400, 1500, 6000)  # characters of a conversation: about 70 tokens to 2,200
GREEDY = SamplingParams(temperature=0, max_tokens=40)
GROWTH = {"rss": 256, "gpu": 64}  # MiB that allocators and decode graphs captured late may add after the first third


def questions(llm: LLM, seed: int, count: int) -> list[list[int]]:
    """Prompts that end in a question; each conversation is asked about more than once, so that prefixes are reused."""
    prompts: list[list[int]] = []
    number = 0
    while len(prompts) < count:
        number += 1
        length = LENGTHS[len(prompts) % len(LENGTHS)]
        seeded = f"soak {seed} {number}"
        talk = write(seeded, length=length, split="test", wording="train", thinking=0.0, functions=0.0)
        asked = [n for n, turn in enumerate(talk.turns) if turn.kind in ("stated", "updated")][-3:]
        prompts += [llm.chat_token_ids(talk.messages(until=n)) for n in asked]
    return prompts[:count]


def memory(llm: LLM) -> dict[str, float]:
    """MiB of this process, and of the GPU."""
    now = {"rss": int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20}
    if llm.device.type == "cuda":
        now["gpu"] = torch.cuda.memory_allocated(llm.device) / 2**20
    return {name: round(value, 1) for name, value in now.items()}


class Load:
    """The clients' work, and its results."""

    def __init__(self, service: Service, prompts: list[list[int]], answers: list[list[int]], deadline: float) -> None:
        self.service, self.prompts, self.answers, self.deadline = service, prompts, answers, deadline
        self.ends: Counter[str] = Counter()
        self.failures: list[str] = []
        self.different = 0
        self._lock = threading.Lock()

    def client(self, seed: str) -> None:
        rng = random.Random(seed)
        while time.monotonic() < self.deadline:
            kind = rng.choices(("question", "sampled", "cancelled", "scored"), (8, 4, 3, 1))[0]
            try:
                getattr(self, f"_{kind}")(rng)
            except Exception as error:
                self._fail(f"{kind}: {type(error).__name__}: {error}")
            with self._lock:
                self.ends[kind] += 1

    def _fail(self, text: str) -> None:
        with self._lock:
            self.failures.append(text)

    def _question(self, rng: random.Random) -> None:
        number = rng.randrange(len(self.prompts))
        *_, last = self.service.stream(self.prompts[number], GREEDY)
        assert last.completion is not None
        if last.finish_reason == "error":
            self._fail(f"question: {last.completion.error}")
        elif last.completion.token_ids != self.answers[number]:
            with self._lock:
                self.different += 1
            if self.service.llm.precision == "exact":
                self._fail(f"question {number} is answered {last.completion.text!r}, unlike on its own")

    def _random(self, rng: random.Random) -> tuple[list[int], SamplingParams]:
        """A prompt of random tokens, perhaps after a beginning that others have, and its parameters."""
        shared = rng.choice(self.prompts)[: rng.choice((0, 64, 200))]
        tokens = [rng.randrange(10, self.service.llm.config.vocab_size) for _ in range(rng.randint(2, 150))]
        options: dict[str, Any] = rng.choice(({}, {"top_p": 0.9}, {"repetition_penalty": 1.2}, {"logprobs": 3}))
        temperature = rng.choice((0, 1))
        return shared + tokens, SamplingParams(
            temperature=temperature, max_tokens=rng.randint(1, 80), ignore_eos=True, **options
        )

    def _sampled(self, rng: random.Random) -> None:
        prompt, params = self._random(rng)
        *_, last = self.service.stream(prompt, params, inspect=rng.random() < 0.05)
        if last.finish_reason != "length":
            self._fail(f"sampled: {last.finish_reason}: {last.completion and last.completion.error}")

    def _cancelled(self, rng: random.Random) -> None:
        prompt, params = self._random(rng)
        left = rng.choice((0, 1, 5, 20))
        with self.service.stream(prompt, params) as stream:
            for _ in range(left):
                if next(stream).finish_reason is not None:
                    return

    def _scored(self, rng: random.Random) -> None:
        request = self.service.requests.from_tokens(self._random(rng)[0])
        scores = asyncio.run(self.service.score(request))
        if len(scores) != len(request.prompt) - 1:
            self._fail(f"scored: {len(scores)} of {len(request.prompt)} tokens")


def run(
    seed: int,
    seconds: float,
    *,
    device: str | None = None,
    precision: Any = None,
    clients: int = 12,
    prompts: int = 24,
    pages: int = 160,
) -> dict[str, Any]:
    """One soak of the demo for this long, after each prompt's expected answer has been computed."""
    llm = LLM(device=device, precision=precision, page_count=pages, max_sequences=clients, check_cache=True)
    asked = questions(llm, seed, prompts)
    alone = LLM.from_model(
        llm.model,
        llm.config,
        llm.tokenizer,
        precision=llm.precision,
        device=str(llm.device),
        page_count=pages,
        reuse_pages=False,
    )
    answers = [alone.generate(prompt, GREEDY)[0].token_ids for prompt in asked]
    del alone
    marks = {}
    with Service(llm, deadline=600) as service:
        load = Load(service, asked, answers, time.monotonic() + seconds)
        threads = [threading.Thread(target=load.client, args=(f"{seed} {n}",), daemon=True) for n in range(clients)]
        for thread in threads:
            thread.start()
        time.sleep(seconds / 3)
        marks["a third"] = memory(llm)
        for thread in threads:
            thread.join(seconds + 120)
        marks["end"] = memory(llm)
        failures = list(load.failures)
        failures += [f"client {n} has not ended" for n, thread in enumerate(threads) if thread.is_alive()]
        end = time.monotonic() + 10
        while (stats := service.stats()).open and time.monotonic() < end:  # cancelled requests end within two steps
            time.sleep(0.05)
    check_pool(llm.engine.pool)
    engine = llm.engine.stats()
    if stats.open or engine.pages_used:
        failures.append(f"{stats.open} requests are open and {engine.pages_used} pages in use; expected none")
    for name, most in GROWTH.items():
        if name in marks["end"] and marks["end"][name] > marks["a third"][name] + most:
            failures.append(
                f"{name} memory grew from {marks['a third'][name]} to {marks['end'][name]} MiB; expected at most {most} more"
            )
    return {
        "device": torch.cuda.get_device_name(llm.device) if llm.device.type == "cuda" else "cpu",
        "precision": llm.precision,
        "requests": dict(load.ends),
        "different_answers": load.different,
        "finished": engine.finished,
        "steps": engine.steps,
        "computed_tokens": engine.computed_tokens,
        "generated_tokens": engine.generated_tokens,
        "reused_tokens": engine.cached_tokens,
        "preemptions": engine.preemptions,
        "mib": marks,
        "failures": failures,
    }
