"""LLM: prompts in, completions out. The class that users call from Python."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Never, Self, overload

import torch

from ..kernels.errors import ArgumentError
from ..model.config import ModelConfig, Precision
from ..model.selection_policy import SelectionPolicy
from .answers import Driver
from .chat import ChatCompletion, ChatDelta, ChatReader, Tools, chat_completion
from .completion import Completion, Delta
from .config import LIMITS, EngineConfig, unexpected_argument
from .engine.engine import EngineStats
from .engine.request_maker import RequestMaker
from .engine.running.observer import Model
from .engine.running.scoring import AnswerScores, all_logits, score_answer
from .extensions import attached
from .inspection import Recorder
from .params import SamplingParams
from .parts import DEMO as DEMO
from .parts import Parts, load_parts, parts_around
from .prompts import Conversation, Prompt, check_answer, is_conversation
from .text.messages import ChatFormat
from .text.tokenizer import Tokenizer
from .trace import Trace


class LLM:
    """A model with its engine, used by one thread at a time.

    The streams of a thread may be interleaved: each step advances all that are open. Another thread may take over between two
    calls, even while a stream is open. RuntimeError for a call while another thread's runs (Service serves many), and in a fork.
    """

    def __init__(
        self,
        path: str | Path | Mapping[str, Any] | None = None,
        *,
        device: str | None = None,
        precision: Precision | None = None,
        backend: str = "auto",
        tensor_parallel_size: int | None = None,
        max_model_len: int | None = None,
        max_batch_tokens: int | None = None,
        max_sequences: int | None = None,
        page_count: int | None = None,
        memory_fraction: float | None = None,
        reuse_pages: bool = True,
        decode_graphs: bool = True,
        check_cache: bool = False,
        speculative_tokens: int | Literal["auto"] = "auto",
        deterministic: bool = False,
        chat_format: ChatFormat | None = None,
        config_overrides: dict[str, Any] | None = None,
        synthetic: bool = False,
        verify_hashes: bool = True,
        offload: Literal["experts"] | None = None,
        expert_slots: int | None = None,
        attention: Literal["data"] | None = None,
        progress: Callable[..., Any] | None = None,
        **unknown: Never,
    ) -> None:
        """Load a checkpoint directory, or the demo that ships inside.

        device: by default "cuda" if there is a GPU, else "cpu". precision: by default "exact" on a CPU; on a GPU "fp8" for a
        checkpoint in FP8, else "bf16". chat_format: how conversations are written; by default the checkpoint's. config_overrides:
        fields of `ModelConfig`. verify_hashes, progress: as in `load_model`. synthetic: random weights; `path` gives only the
        configuration, by default the released model's. check_cache: stamp the caches' entries and verify them; a mismatch ends its
        request with an error that names a report. speculative_tokens: how many tokens the MTP layer guesses a step, 0 to 4, or
        "auto" (docs/speculation.md). deterministic: a request's logits have the same bits whatever else runs (docs/determinism.md).
        offload: "experts" leaves the routed experts in the checkpoint's files and reads them when a token needs them, into
        `expert_slots` slots, by default as many as fit (docs/offload.md). attention: "data" divides the sequences among several
        ranks, so that their caches hold that many times as much (docs/serving.md). All others are limits: see `resolve_limits`.
        ValueError for what does not exist, does not fit, or is out of range.
        tensor_parallel_size: the number of ranks that share the model, each with a GPU. The others are this process's children,
        which `close` ends. Under torchrun its ranks share the model: rank 0 returns, the others work until it ends and then exit.
        """
        for name in unknown:
            raise unexpected_argument(name)
        chosen = EngineConfig(
            device=device,
            precision=precision,
            backend=backend,
            tensor_parallel_size=tensor_parallel_size,
            max_model_len=max_model_len,
            max_batch_tokens=max_batch_tokens,
            max_sequences=max_sequences,
            page_count=page_count,
            memory_fraction=memory_fraction,
            reuse_pages=reuse_pages,
            decode_graphs=decode_graphs,
            check_cache=check_cache,
            speculative_tokens=speculative_tokens,
            deterministic=deterministic,
            chat_format=chat_format,
            config_overrides=config_overrides,
            synthetic=synthetic,
            verify_hashes=verify_hashes,
            offload=offload,
            expert_slots=expert_slots,
            attention=attention,
        )
        self._set_up(load_parts(path, chosen, progress))

    @classmethod
    def from_config(
        cls,
        path: str | Path | Mapping[str, Any] | None,
        chosen: EngineConfig,
        progress: Callable[..., Any] | None = None,
    ) -> "LLM":
        """As `LLM(path, …)`, with all choices in one object."""
        llm = cls.__new__(cls)
        llm._set_up(load_parts(path, chosen, progress))
        return llm

    @classmethod
    def from_model(
        cls,
        model: Model,
        config: ModelConfig,
        tokenizer: Tokenizer | None = None,
        *,
        precision: Precision = "exact",
        device: str = "cpu",
        chat_format: ChatFormat | None = None,
        **limits: Any,
    ) -> "LLM":
        """An LLM around a model that is in memory already; without drafts by default. `limits`: the engine's, as in `__init__`."""
        if unknown := limits.keys() - LIMITS:
            raise TypeError(f"from_model() got an unexpected keyword argument {min(unknown)!r}")
        settings: dict[str, Any] = {"precision": precision, "device": device, "chat_format": chat_format}
        llm = cls.__new__(cls)
        chosen = EngineConfig(**{"speculative_tokens": 0, **settings, **limits})
        llm._set_up(parts_around(model, config, tokenizer, chosen))
        return llm

    def _set_up(self, parts: Parts) -> None:
        self.model = parts.model
        self.config = parts.config
        self.tokenizer = parts.tokenizer
        self.chat_format = parts.chat_format
        self.limits = parts.limits
        self.precision = parts.precision
        self.device = parts.device
        self.tensor_parallel_size = 1 if parts.job is None else parts.job.size
        self.engine = parts.engine
        self.checkpoint = parts.checkpoint
        self.recorder = Recorder(parts.config, parts.precision, parts.tokenizer, parts.checkpoint)
        self._driver = Driver(parts.engine, self.recorder)
        self._job = parts.job

    def close(self) -> None:
        """End the open requests and the other ranks, and free the memory. Later calls, but for another close, raise ValueError."""
        if self._driver.close():
            if self._job is not None:
                self._job.end()
            del self.model, self.engine

    @property
    def driver(self) -> Driver:
        """The object that steps the engine, for a caller that works between two steps. ValueError after `close`."""
        self._driver.check_open()
        return self._driver

    @property
    def requests(self) -> RequestMaker:
        """Checks prompts and makes requests of them, also for `Service.submit_many`. ValueError after `close`."""
        return self._driver.check_open().requests

    @property
    def default_params(self) -> SamplingParams:
        """The parameters of requests that give none: the checkpoint's, if it has some."""
        return self.requests.default_params

    @default_params.setter
    def default_params(self, params: SamplingParams) -> None:
        self.requests.default_params = params

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._driver.closed:
            return "LLM(closed)"
        ranks = f", {self.tensor_parallel_size} ranks" if self.tensor_parallel_size > 1 else ""
        return (
            f"LLM({self.config.num_hidden_layers} layers, {self.precision} on {self.device}{ranks}, "
            f"context of {self.limits.max_model_len} tokens)"
        )

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
        use_tqdm: bool = False,
    ) -> list[Completion]:
        """Complete one prompt or several, each a text (a bos token is put before it) or token ids, or vLLM's mapping with one.

        params: for all prompts, or one SamplingParams for each; with n above 1 a prompt's n completions follow each other.
        inspect: Completion.selection holds what DSA selected. policy: an experiment, in which the prompts' queries attend to
        something else than the model's own selection. use_tqdm: show a progress bar. ValueError, before anything runs, for a
        prompt or parameter out of range. A request that fails while it runs has finish_reason "error", and Completion.error says
        why; the others are complete.
        """
        return self._driver.all(self.requests.make(prompts, params, inspect, policy), use_tqdm)

    def as_completed(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> Iterator[tuple[int, Completion]]:
        """Like `generate`, but yields (index in its list, completion) as each finishes. Closing the iterator cancels the rest."""
        return self._driver.completions(self.requests.make(prompts, params, inspect, policy))

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> Iterator[Delta]:
        """The answer token by token: one Delta for each, the last with the Completion. Closing the iterator cancels the request.

        ValueError at the call, before the first Delta, as in `generate`.
        """
        return self._driver.deltas([self.requests.make_one(prompt, params, inspect, policy)])

    @overload
    def chat(
        self,
        messages: Conversation,
        params: SamplingParams | None = None,
        thinking: bool = False,
        tools: Tools | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
        use_tqdm: bool = False,
    ) -> ChatCompletion: ...

    @overload
    def chat(
        self,
        messages: Sequence[Conversation],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        thinking: bool = False,
        tools: Tools | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
        use_tqdm: bool = False,
    ) -> list[ChatCompletion]: ...

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        params: Any = None,
        thinking: bool = False,
        tools: Tools | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
        use_tqdm: bool = False,
    ) -> ChatCompletion | list[ChatCompletion]:
        """Answer a conversation, or several in a list. A completion's `message` is the parsed answer. The rest is `generate`'s.

        A conversation is a list of {"role", "content", …} messages in OpenAI's shape.
        """
        if is_conversation(messages):
            requests = [self.requests.make_one_chat(messages, params, thinking, tools, inspect, policy)]
            [answer] = self._driver.all(requests, use_tqdm)
            return chat_completion(answer, thinking, tools)
        requests = self.requests.make_chat(messages, params, thinking, tools, inspect, policy)
        return [chat_completion(each, thinking, tools) for each in self._driver.all(requests, use_tqdm)]

    def stream_chat(
        self,
        messages: Conversation,
        params: SamplingParams | None = None,
        thinking: bool = False,
        tools: Tools | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> Iterator[ChatDelta]:
        """The answer to a conversation token by token. A delta's `message` is what it adds to content, reasoning and calls."""
        request = self.requests.make_one_chat(messages, params, thinking, tools, inspect, policy)
        return ChatReader(thinking, tools).read_all(self._driver.deltas([request]))

    def chat_token_ids(self, messages: Conversation, thinking: bool = False, tools: Tools | None = None) -> list[int]:
        """The prompt of a conversation, for `stream` or `generate`."""
        return self.requests.chat_token_ids(messages, thinking, tools)

    def logits(self, token_ids: Sequence[int], chunk: int | None = None) -> torch.Tensor:
        """fp32 [T, vocab] on the CPU: the logits after every token (teacher forcing), computed `chunk` tokens per step."""
        with self._driver.engine() as engine:
            return all_logits(engine, token_ids, chunk)

    @overload
    def trace(
        self, token_ids: Sequence[int], layers: Sequence[int] | None = None, chunk: int | None = None
    ) -> Trace: ...

    @overload
    def trace(
        self, token_ids: Sequence[Sequence[int]], layers: Sequence[int] | None = None, chunk: int | None = None
    ) -> list[Trace]: ...

    def trace(
        self, token_ids: Sequence[Any], layers: Sequence[int] | None = None, chunk: int | None = None
    ) -> Trace | list[Trace]:
        """Every stage of the same pass by name, of all layers or some (docs/conformance.md); of several texts in few steps."""
        several = len(token_ids) > 0 and isinstance(token_ids[0], Sequence)
        with self._driver.engine() as engine:
            traces = list(attached("trace_prompts")(engine, token_ids if several else [token_ids], layers, chunk))
        return traces if several else traces[0]

    def score_answer(
        self, prompt: Prompt, answer: Sequence[int], policy: SelectionPolicy | None = None, top: int = 0
    ) -> AnswerScores:
        """Score an answer's tokens: log-probabilities, the `top` likeliest alternatives, and selections. Errors as `generate`."""
        check_answer(answer)
        if type(top) is not int or top < 0:
            raise ArgumentError("top", f"{top!r:.100}", "at least 0")
        with self._driver.engine() as engine:
            tokens = [*self.requests.token_ids(prompt), *answer]
            request = engine.requests.from_tokens(tokens, min_new_tokens=0, policy=policy)
            return score_answer(engine, request, len(answer), top)

    def measure(self, answer: Completion) -> None:
        """Compute a recorded answer again, to add its log-probabilities and how much of dense attention's mass was selected."""
        if answer.recording is None:
            raise ValueError(f"selection is {answer.selection}; expected a recorded answer: generate(…, inspect=True)")
        prompt = answer.recording.prompt
        scores = self.score_answer(prompt, answer.token_ids, SelectionPolicy(len(prompt) - 1, measure=True))
        answer.recording.measured([each.logprob for each in scores.logprobs], scores.selections)

    def stats(self) -> EngineStats:
        """Return the engine's counts since its start, and its state."""
        with self._driver.engine() as engine:
            return engine.stats()
