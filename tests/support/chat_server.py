"""The chat on a port of its own, with a scripted service, so that browser tests know which text must appear."""

import itertools
import re
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepseek_v32.inference import LLM
from deepseek_v32.inference.completion import Completion, Delta, FinishReason, Timings, TokenLogprob, Usage
from deepseek_v32.inference.engine.engine import EngineStats
from deepseek_v32.inference.engine.running.scoring import AnswerScores
from deepseek_v32.inference.params import SamplingParams
from deepseek_v32.inference.server.service.service import ServiceStats
from deepseek_v32.inference.text.detokenizer import token_texts
from deepseek_v32.inference.text.tokenizer import ASSISTANT, THINK, USER, Tokenizer
from deepseek_v32.inference.token_selection import TokenSelection
from deepseek_v32.model.selection_policy import SelectionPolicy
from support.fake_model import ScriptedModel, fake_config
from support.tokenizers import make_tokenizer

NEEDLE = "The door code of the Tolmir Archive is 4815."
CALL = """<｜DSML｜function_calls>
<｜DSML｜invoke name="get_weather">
<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>"""
LAYERS = 3
TOPK = 24


@dataclass
class ScriptedService:
    """Stands in for a Service: answers a question with its text in `replies`, or an echo, and functions' results with these.

    One token comes each `pace` seconds, and none after `upto` or while `held` is a part of the question. Its last layer selects the
    needle and the newest tokens, the others the newest tokens only.
    """

    llm: LLM
    replies: dict[str, str] = field(default_factory=dict)
    thoughts: str = "First I look at the question. Then I look for the answer."
    pace: float = 0.004
    held: str | None = None
    upto: int | None = None
    asked: list[str] = field(default_factory=list)  # the decoded prompts
    seeds: list[int | None] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    lengths: list[int | None] = field(default_factory=list)  # max_tokens
    reading: Sequence[int] = ()  # tokens of the prompt that are read, poll by poll, before an answer begins
    policies: list[SelectionPolicy] = field(default_factory=list)  # of experiments
    cancelled: set[int] = field(default_factory=set)
    open: int = 0

    def __post_init__(self) -> None:
        self._ids = itertools.count()

    @property
    def tokenizer(self) -> Tokenizer:
        assert self.llm.tokenizer is not None
        return self.llm.tokenizer

    def stream(
        self,
        token_ids: Sequence[int],
        params: SamplingParams | None = None,
        inspect: bool | int = False,
        policy: SelectionPolicy | None = None,
    ) -> "_Stream":
        if policy is not None:
            self.policies.append(policy)
        most = len(token_ids) + 10**6 if inspect is True else inspect
        stream = _Stream(self, list(token_ids), params or SamplingParams(), most, next(self._ids))
        if self.asked[-1].endswith("refuse this</think>"):
            raise ValueError("the prompt is refused")
        return stream

    def score_answer(
        self,
        prompt: Sequence[int],
        answer: Sequence[int],
        policy: SelectionPolicy,
        **given: Any,
    ) -> AnswerScores:
        """Every token has log-probability -1, and under a changed selection -3; a quarter of dense attention's mass is caught."""
        value = -1.0 if policy.measure else -3.0
        mass = {layer: np.full(8, 0.25, np.float32) for layer in range(LAYERS)}
        found = [TokenSelection(len(prompt) - 1 + i) for i in range(len(answer))]
        for each in found:
            each.mass.update(mass)
        return AnswerScores([TokenLogprob(token, value) for token in answer], found)

    def cancel(self, request_id: int) -> None:
        self.cancelled.add(request_id)

    def stats(self) -> ServiceStats:
        engine = EngineStats(pages_used=3 * self.open, pages_cached=5)
        return ServiceStats(engine, self.open, refused=0, capacity=8, seconds_since_step=0.0, failed=False)


class _Stream:
    def __init__(
        self, service: ScriptedService, prompt: list[int], params: SamplingParams, inspect: int, request_id: int
    ) -> None:
        self.request_id = request_id
        self._reading, self._cancelled = list(service.reading), service.cancelled
        self.deltas = self._run(service, prompt, params, inspect)
        tokenizer = service.tokenizer
        service.asked.append(
            tokenizer.decode(prompt, skip_special_tokens=False).replace(USER, "").replace(ASSISTANT, "")
        )
        service.seeds.append(params.seed)
        service.temperatures.append(params.temperature)
        service.lengths.append(params.max_tokens)

    def __iter__(self) -> Iterator[Delta]:
        return self

    def poll(self, seconds: float) -> Delta | None:
        if not self._reading or self.request_id in self._cancelled:
            return next(self.deltas)
        time.sleep(seconds)
        self.computed = self._reading.pop(0)
        return None

    def __next__(self) -> Delta:
        return next(self.deltas)

    computed = 0

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self.deltas.close()

    def _run(
        self, service: ScriptedService, prompt: list[int], params: SamplingParams, inspect: int
    ) -> Generator[Delta, None, None]:
        tokenizer = service.tokenizer
        text = tokenizer.decode(prompt, skip_special_tokens=False)
        turn = text.rsplit(USER, 1)[1]
        question = turn.split(ASSISTANT)[0]
        if "fail this" in question:
            raise RuntimeError("secret /etc/passwd detail")
        results = re.findall(r"<result>(.*?)</result>", turn)
        reply = " and ".join(results) or service.replies.get(question, f"You said: {question}")
        thinking = text.endswith(THINK)
        if thinking:
            reply = f"{service.thoughts}</think>{reply}"
        tokens = tokenizer.encode(reply)[: params.max_tokens]
        needle = _find(text, prompt, tokenizer)
        written: list[int] = []
        service.open += 1
        try:
            for token, piece in zip(tokens, token_texts(tokens, tokenizer), strict=True):
                time.sleep(service.pace)
                while self.request_id not in service.cancelled and (
                    (service.held is not None and service.held in question)
                    or (service.upto is not None and len(written) >= service.upto)
                ):
                    time.sleep(0.01)
                if self.request_id in service.cancelled:
                    break
                written.append(token)
                selection = _selection(len(prompt) + len(written) - 2, needle) if len(written) <= inspect else None
                yield Delta(self.request_id, piece, (token,), selection=selection)
        finally:
            service.open -= 1
        reason: FinishReason = "abort" if len(written) < len(tokens) else "stop"
        usage = Usage(len(prompt), len(written), len(prompt) // 64 * 64)
        completion = Completion(reply, written, reason, usage, Timings(0.1, 0.2, 50.0, 0.1))
        yield Delta(self.request_id, finish_reason=reason, completion=completion)


def _find(text: str, prompt: list[int], tokenizer: Tokenizer) -> np.ndarray:
    """Positions of the needle's tokens in the prompt."""
    at = text.find(NEEDLE)
    if at < 0:
        return np.array([], dtype=np.int32)
    lengths = np.cumsum([len(tokenizer.decode([token], skip_special_tokens=False)) for token in prompt])
    first, last = np.searchsorted(lengths, [at, at + len(NEEDLE) - 1], side="right")
    return np.arange(first, last + 1, dtype=np.int32)


def _selection(position: int, needle: np.ndarray) -> TokenSelection:
    recent = np.arange(max(0, position + 1 - TOPK), position + 1, dtype=np.int32)
    last = np.union1d(recent[-4:], needle).astype(np.int32)
    scores = np.where(np.isin(last, needle), 9.0, 1.0).astype(np.float32)
    scores[-1] = 0.5
    selection = TokenSelection(position)
    selection.layers.update({0: recent, 1: recent, LAYERS - 1: last})
    selection.scores[LAYERS - 1] = scores
    return selection


def scripted_llm(checkpoint: str = "") -> LLM:
    tokenizer = make_tokenizer()
    config = fake_config(
        vocab_size=tokenizer.vocab_size, num_hidden_layers=LAYERS, index_topk=TOPK, max_position_embeddings=32768
    )
    llm = LLM.from_model(ScriptedModel(config, [1]), config, tokenizer, page_count=512)
    llm.checkpoint = checkpoint
    return llm


@dataclass
class ChatServer:
    url: str
    service: Any
    stop: Callable[[], None]


def serve(service: ScriptedService, model: str = "scripted", port: int = 0) -> ChatServer:
    """Serve only the chat."""
    import fastapi

    from deepseek_v32.inference.chat_app.mount import mount_chat

    app = fastapi.FastAPI()
    stand_in: Any = service
    mount_chat(app, stand_in, model)
    return serve_app(app, service, port)


def serve_app(app: Any, service: Any, port: int = 0) -> ChatServer:
    """Serve an application in a thread, on a loopback port, by default a free one."""
    import uvicorn

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.02)

    def stop() -> None:
        server.should_exit = True
        thread.join(10)

    return ChatServer(f"http://127.0.0.1:{listener.getsockname()[1]}/", service, stop)
