"""The engine's output: a Delta for each step, and the whole Completion. No tensors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from ..model.selection_policy import SelectionPolicy
from .extensions import attached
from .recording import Recording
from .token_selection import TokenSelection

ErrorCode = Literal["deadline", "stopped"]  # only from a service: the deadline has passed, or the service has ended
FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True)
class TokenLogprob:
    """Natural-log probability of one generated token under the raw logits: before penalties, temperature and filters."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (id, logprob) of the likeliest tokens, best first


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # prompt tokens whose cache entries were reused rather than computed


@dataclass(frozen=True)
class Timings:
    """Times are in seconds since the request's arrival."""

    time_to_first_token: float | None  # None if no token was generated
    total: float
    tokens_per_second: float | None  # decode rate: tokens after the first, over their time; None for fewer than two
    selected_fraction: float  # tokens that DSA selected / context tokens, over the generated tokens' queries
    drafted_tokens: int = 0  # generated tokens that the draft layer had guessed; the others took a step each


@dataclass(frozen=True, repr=False)
class Completion:
    """The answer to one request."""

    text: str  # "" without a tokenizer
    token_ids: list[int]  # generated tokens, with the end-of-sentence token if one ended the answer
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    logprobs: list[TokenLogprob] | None = None  # one for each token id, if SamplingParams asks for them
    stop_reason: str | int | None = None  # the stop string or stop token id that ended the answer
    error: str | None = None  # one line; set with finish_reason "error"
    error_code: ErrorCode | None = None  # the kind of error, for programs
    selection: list[TokenSelection] | None = None  # one for each token id, with inspect=True
    # With inspect=True, set by LLM.
    make_recording: Callable[[], Recording] | None = field(default=None, repr=False, compare=False)

    @property
    def is_cut(self) -> bool:
        """Whether something other than the model has ended the answer: max_tokens, a cancellation or a failure."""
        return self.finish_reason != "stop"

    @cached_property
    def recording(self) -> Recording | None:
        """The inspector's data, with inspect=True. Made at its first use."""
        return None if self.make_recording is None else self.make_recording()

    def __repr__(self) -> str:
        ending = repr(self.finish_reason) if self.error is None else f"'error', error={self.error!r}"
        counts = f"{self.usage.prompt_tokens} prompt tokens, {len(self.token_ids)} tokens"
        return f"{type(self).__name__}({self.text!r}, finish_reason={ending}, {counts})"

    def _repr_html_(self) -> str | None:
        """Show the inspector in a notebook if the selection was recorded. Nothing is loaded from elsewhere."""
        return None if self.recording is None else str(attached("notebook_frame")(self.recording))

    def save_html(self, path: str | Path) -> None:
        """Write the inspector as one HTML file that loads nothing. ValueError as `replay`, or for another name."""
        if self.recording is None:
            raise ValueError(f"selection is {self.selection}; expected a recorded answer: generate(…, inspect=True)")
        attached("write_report")(Path(path), self.recording)

    def replay(self) -> SelectionPolicy:
        """The policy under which the same prompt reads what it read for this answer. ValueError if that was not recorded."""
        if not self.selection:
            raise ValueError(f"selection is {self.selection}; expected a recorded answer: generate(…, inspect=True)")
        recorded = {each.position: each.layers for each in self.selection}
        return SelectionPolicy(min(recorded), recorded=recorded)


@dataclass(frozen=True)
class Delta:
    """The part of one request's answer that one step added. The last Delta carries the whole Completion."""

    request_id: int
    text: str = ""  # complete characters that cannot be part of a stop string any more
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    selection: TokenSelection | None = None  # with inspect=True
    finish_reason: FinishReason | None = None
    completion: Completion | None = None
