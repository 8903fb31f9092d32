"""The state of a running request: turns sampled tokens into text, checks stop conditions, and ends in a Completion."""

import logging
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ..completion import Completion, Delta, FinishReason, Timings, TokenLogprob, Usage
from ..text.detokenizer import IncrementalDecoder, StopStrings
from ..text.tokenizer import DSML, END_THINK, Tokenizer
from ..token_selection import TokenSelection
from .fault import Fault, log_fault
from .request import Request
from .running.selection import SelectionRecorder
from .sampling.sampler import Sample

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass
class RequestState:
    """One request from its arrival to its Completion."""

    request: Request
    tokenizer: Tokenizer | None
    eos_ids: Set[int]
    index_topk: int
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    _text: list[str] = field(default_factory=list)
    _logprobs: list[TokenLogprob] = field(default_factory=list)
    _selection: list[TokenSelection] = field(default_factory=list)
    _arrival: float = field(default_factory=time.perf_counter)
    _first: float | None = None  # time of the first token
    _last: float = 0.0  # time of the last token
    _drafted: int = 0  # tokens that were drafts

    def __post_init__(self) -> None:
        self._decoder = IncrementalDecoder(self.tokenizer) if self.tokenizer else None
        params, marks = self.request.params, {} if self.tokenizer is None else self.tokenizer.special_ids
        self._stops = StopStrings(params.stop)
        # Of an answer to a conversation, whether its content is being written, and the tokens that begin and end it.
        self._in_content = params.begins_in != "reasoning"
        self._marks = {} if params.begins_in == "text" else {marks.get(END_THINK): True, marks.get(DSML): False}

    def push(self, sample: Sample, recorder: SelectionRecorder | None, offset: int = 0) -> Delta:
        """Append a sampled token to the request, and decide whether it is the last one. offset: its place among the step's tokens.

        Raises no Exception: a failure (the tokenizer's library raises plain Exception) ends only this request, with an error.
        After Ctrl-C the token counts as not yet arrived.
        """
        tokens, pieces, drafted = len(self.request.tokens), len(self._text), self._drafted
        try:
            return self._push(sample, recorder, offset)
        except Exception as error:
            log_fault(log, "request %d failed", self.request.id)
            fault = error if isinstance(error, Fault) else Fault("adding a token to the answer", error)
            last = self.finish("error", str(fault))
            return replace(last, text="".join(self._text[pieces:]), token_ids=tuple(self.request.tokens[tokens:]))
        except BaseException:
            self._drafted, count = drafted, tokens - len(self.request.prompt)
            del self.request.tokens[tokens:], self._text[pieces:], self._logprobs[count:], self._selection[count:]
            self.__post_init__()  # the decoder starts again
            for count, token in enumerate(self.request.output, 1):
                self._push_text(token, count)
            self.finish_reason = self.stop_reason = self.error = None
            raise

    def finish(self, reason: FinishReason, error: str | None = None) -> Delta:
        """End the request without another token, because it was cancelled or has failed. Raises nothing."""
        self.finish_reason, self.error, text = reason, error, ""
        try:
            text = self._flush()
        except Fault as fault:  # the text that was held back is lost
            log_fault(log, "request %d failed", self.request.id)
            self.finish_reason, self.error = "error", error or str(fault)
        return self._delta(text)

    def completion(self) -> Completion:
        assert self.finish_reason is not None
        request, now, topk, policy = self.request, time.perf_counter(), self.index_topk, self.request.policy
        count, rate, first = request.output_count, None, None
        if self._first is not None:
            first = self._first - self._arrival
            if count > 1 and self._last > self._first:
                rate = (count - 1) / (self._last - self._first)
        contexts = range(len(request.prompt), len(request.tokens))
        selected = sum([min(each, topk) if policy is None else policy.width(each, topk) for each in contexts])
        fraction = selected / sum(contexts) if contexts else 1.0
        return Completion(
            text="".join(self._text),
            token_ids=request.output,
            finish_reason=self.finish_reason,
            usage=Usage(len(request.prompt), count, request.queue.cached_tokens or 0),
            timings=Timings(first, now - self._arrival, rate, fraction, self._drafted),
            logprobs=self._logprobs if request.params.logprobs is not None else None,
            stop_reason=self.stop_reason,
            error=self.error,
            selection=self._selection if request.inspect else None,
        )

    def _push(self, sample: Sample, recorder: SelectionRecorder | None, offset: int) -> Delta:
        if sample.error is not None:
            return self.finish("error", sample.error)
        request, params = self.request, self.request.params
        selection = None if recorder is None else recorder.of(request, offset, sample.drafted)
        token, text = sample.token, ""
        self._drafted += sample.drafted
        request.tokens.append(token)
        self._last = time.perf_counter()
        self._first = self._last if self._first is None else self._first
        if sample.logprob:
            self._logprobs.append(sample.logprob)
        if selection is not None:
            self._selection.append(selection)
        if token in self.eos_ids and not params.ignore_eos:
            self.finish_reason = "stop"
        elif token in params.stop_token_ids:
            self.finish_reason, self.stop_reason = "stop", token
        else:
            text = self._push_text(token, request.output_count)
            if self.finish_reason is None and request.output_count >= request.max_tokens:
                self.finish_reason = "length"
        if self.finish_reason is not None:
            text += self._flush()
        return self._delta(text, sample, selection)

    def _push_text(self, token: int, count: int) -> str:
        """Return the text that is safe to show after the answer's token number `count`."""
        if self._decoder is None:
            return ""
        try:
            text = self._decoder.push((token,))
        except Exception as error:
            raise Fault("the detokenizer", error) from error
        if not self.request.params.stop:
            return text
        if token in self._marks:
            self._in_content = self._marks[token]
            return _named("matching stop strings", self._stops.finish) + text
        return self._through_stops(text, count)

    def _flush(self) -> str:
        """Return the held-back text once the request ends. After a stop string it is not part of the answer."""
        if self.finish_reason is None or self._decoder is None or isinstance(self.stop_reason, str):
            return ""
        text = _named("the detokenizer", self._decoder.finish)
        text = self._through_stops(text, self.request.output_count)
        return text if isinstance(self.stop_reason, str) else text + _named("matching stop strings", self._stops.finish)

    def _through_stops(self, text: str, count: int) -> str:
        if not self._in_content or count < self.request.params.min_tokens:
            return text
        safe, hit = _named("matching stop strings", lambda: self._stops.push(text))
        if hit is not None:
            self.finish_reason, self.stop_reason = "stop", hit
        return safe

    def _delta(self, text: str, sample: Sample | None = None, selection: TokenSelection | None = None) -> Delta:
        self._text.append(text)
        return Delta(
            request_id=self.request.id,
            text=text,
            token_ids=(sample.token,) if sample else (),
            logprobs=(sample.logprob,) if sample and sample.logprob else (),
            selection=selection,
            finish_reason=self.finish_reason,
            completion=self.completion() if self.finish_reason is not None else None,
        )


def _named(what: str, work: Callable[[], T]) -> T:
    """Return the result of `work`. Its exception becomes a Fault that names what has failed."""
    try:
        return work()
    except Exception as error:
        raise Fault(what, error) from error
