"""LLM: prompts in, completions out. The class that users call from Python."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import torch

from ..model.config import ModelConfig, Precision
from ..model.selection_policy import SelectionPolicy
from .conformance.trace_file import Trace
from .conformance.tracer import trace_tokens
from .engine.answer_scores import AnswerScores, score_answer
from .engine.driver import Driver
from .engine.prompt_check import is_one
from .engine.runner import Model
from .engine.scoring import all_logits
from .engine.stats import EngineStats
from .inspection import with_recording
from .params import Completion, Delta, Request, SamplingParams
from .parts import DEMO as DEMO
from .parts import Parts, load_parts, parts_around
from .text.answer import parse_assistant
from .text.messages import ChatFormat, encode_messages
from .text.tokenizer import Tokenizer

Prompt = str | Sequence[int]


class LLM:
    """A model with its engine, used by one thread at a time.

    The streams of a thread may be interleaved: each step advances all that are open. Another thread may take over between two
    calls, even while a stream is open. A call while a call of another thread runs raises RuntimeError;
    `deepseek_v32.inference.service.Service` serves many threads.
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
        chat_format: ChatFormat | None = None,
        config_overrides: dict[str, Any] | None = None,
        synthetic: bool = False,
        verify_hashes: bool = True,
        progress: Callable[..., Any] | None = None,
    ) -> None:
        """Load a checkpoint directory, or the demo that ships inside.

        device: by default "cuda" if there is a GPU, else "cpu". precision: by default "exact" on a CPU; on a GPU "fp8" for a
        checkpoint in FP8, else "bf16". chat_format: how conversations are written; by default the checkpoint's. config_overrides,
        verify_hashes, progress: as in `load_model`. synthetic: random weights; `path` gives the configuration alone, by default the
        released model's. check_cache: stamp what the caches hold and verify it; a mismatch ends its request with an error that
        names a report. speculative_tokens: how many tokens the MTP layer guesses a step, 0 to 4, or "auto": as many as pay. All
        others are limits: see `resolve_limits`. ValueError for what does not exist, does not fit, or is out of range.

        tensor_parallel_size: this many ranks share the model, each with a GPU; all but this process are its children, which
        `close` ends. Under torchrun all of its ranks do. There rank 0 returns from here; on the other ranks this call does not
        return: they do their part of its work until it ends, and then exit.
        """
        parts = load_parts(
            path,
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
            chat_format=chat_format,
            config_overrides=config_overrides,
            synthetic=synthetic,
            verify_hashes=verify_hashes,
            progress=progress,
        )
        self._set_up(parts)

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
        """An LLM around a model that is in memory already; `limits` are those of `resolve_limits`."""
        llm = cls.__new__(cls)
        llm._set_up(
            parts_around(
                model, config, tokenizer, precision=precision, device=device, chat_format=chat_format, **limits
            )
        )
        return llm

    def _set_up(self, parts: Parts) -> None:
        self.model = parts.model
        self.config = parts.config
        self.tokenizer = parts.tokenizer
        self.chat_format = parts.chat_format
        self.default_params = parts.default_params  # for requests that give none; the checkpoint's, if it has some
        self.limits = parts.limits
        self.precision = parts.precision
        self.device = parts.device
        self.tensor_parallel_size = 1 if parts.job is None else parts.job.size
        self.engine = parts.engine
        self._driver = Driver(parts.engine)
        self._job = parts.job

    def close(self) -> None:
        """End the open requests and the other ranks, and free the memory. Later calls, but for another close, raise ValueError."""
        if self._driver.close():
            if self._job is not None:
                self._job.end()
            del self.model, self.engine

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
    ) -> list[Completion]:
        """Complete one prompt or several, each a text (a bos token is put before it) or token ids.

        params: for all prompts, or one SamplingParams for each. inspect: Completion.selection holds what DSA selected. policy: an
        experiment, in which the prompts' queries attend to something else than the model's own selection. ValueError, before
        anything runs, for a prompt or parameter out of range. A request that fails while it runs has finish_reason "error", and
        Completion.error says why; the others are complete.
        """
        completions = dict(self.as_completed(prompts, params, inspect, policy))
        return [completions[i] for i in range(len(completions))]

    def as_completed(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        inspect: bool = False,
        policy: SelectionPolicy | None = None,
    ) -> Iterator[tuple[int, Completion]]:
        """As `generate`, but yields (index of the prompt, completion) as each finishes. Closing the iterator cancels the rest."""
        many: list[Any] = [prompts] if is_one(prompts) else list(prompts)
        params = params or self.default_params
        each = [params] * len(many) if isinstance(params, SamplingParams) else list(params)
        if len(each) != len(many):
            raise ValueError(
                f"params has {len(each)} entries; expected one, or one for each of the {len(many)} prompts"
            )
        requests = [self._request(prompt, chosen, inspect, policy) for prompt, chosen in zip(many, each, strict=True)]
        return self._completions(requests)

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
        request = self._request(prompt, params, inspect, policy)
        deltas = self._driver.deltas([request])
        return (self._recorded(request, delta) for delta in deltas) if inspect else deltas

    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        params: SamplingParams | None = None,
        thinking: bool = False,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> Completion:
        """Answer a conversation of {"role", "content", …} messages. Completion.message is the parsed answer."""
        params = (params or self.default_params).for_answer(thinking)
        [completion] = self.generate(self.chat_token_ids(messages, thinking, tools), params)
        return replace(completion, message=parse_assistant(completion.text, thinking, tools))

    def chat_token_ids(
        self,
        messages: Sequence[dict[str, Any]],
        thinking: bool = False,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> list[int]:
        """The prompt of a conversation, for `stream` or `generate`."""
        return encode_messages(messages, self._need_tokenizer("a conversation"), thinking, tools, self.chat_format)

    def logits(self, token_ids: Sequence[int], chunk: int | None = None) -> torch.Tensor:
        """fp32 [T, vocab] on the CPU: the logits after every token (teacher forcing), computed `chunk` tokens per step."""
        with self._driver.engine() as engine:
            return all_logits(engine, token_ids, chunk)

    def trace(self, token_ids: Sequence[int], layers: Sequence[int] | None = None, chunk: int | None = None) -> Trace:
        """Every stage of the same pass by name, of all layers or some (docs/conformance.md)."""
        with self._driver.engine() as engine:
            return trace_tokens(engine, token_ids, layers, chunk)

    def score_answer(
        self, prompt: Prompt, answer: Sequence[int], policy: SelectionPolicy | None = None, top: int = 0
    ) -> AnswerScores:
        """The log-probabilities of an answer's tokens, the `top` likeliest beside them, and what was read. Errors as `generate`."""
        if not len(answer):
            raise ValueError("answer is empty; expected at least 1 token")
        with self._driver.engine() as engine:
            tokens = [*self._token_ids(prompt), *answer[:-1]]
            return score_answer(engine, engine.make_request(tokens, policy=policy), answer, top)

    def measure(self, answer: Completion) -> None:
        """Compute a recorded answer again, to add its log-probabilities and how much of dense attention's mass was selected."""
        if answer.recording is None:
            raise ValueError(f"selection is {answer.selection}; expected a recorded answer: generate(…, inspect=True)")
        prompt = answer.recording.prompt
        scores = self.score_answer(prompt, answer.token_ids, SelectionPolicy(len(prompt) - 1, measure=True))
        answer.recording.measured([each.logprob for each in scores.logprobs], scores.selections)

    def stats(self) -> EngineStats:
        """What the engine has done so far, and its state."""
        with self._driver.engine() as engine:
            return engine.stats()

    def _request(
        self, prompt: Prompt, params: SamplingParams | None, inspect: bool, policy: SelectionPolicy | None
    ) -> Request:
        self._driver.check_open()
        return self.engine.make_request(self._token_ids(prompt), params or self.default_params, inspect, policy=policy)

    def _token_ids(self, prompt: Prompt) -> Sequence[int]:
        if not isinstance(prompt, str):
            return prompt
        if not prompt:
            raise ValueError("prompt is empty; expected at least 1 character")
        return self._need_tokenizer("a text prompt").encode_prompt(prompt)

    def _need_tokenizer(self, what: str) -> Tokenizer:
        if self.tokenizer is None:
            raise ValueError(f"{what} needs a tokenizer, but the checkpoint has none; expected token ids")
        return self.tokenizer

    def _completions(self, requests: list[Request]) -> Iterator[tuple[int, Completion]]:
        index = {request.id: i for i, request in enumerate(requests)}
        for delta in self._driver.deltas(requests):
            if delta.completion is not None:
                place = index[delta.request_id]
                yield place, self._recorded(requests[place], delta).completion or delta.completion

    def _recorded(self, request: Request, delta: Delta) -> Delta:
        """A delta whose completion has a recording, if its selection was recorded."""
        if delta.completion is None or not request.inspect:
            return delta
        sizes = (self.config, self.precision, self.tokenizer)
        return replace(delta, completion=with_recording(*sizes, request.prompt, delta.completion))
