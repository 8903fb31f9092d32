"""Recorded answers, kept in memory for the inspector, and its experiments: measure an answer, or change its selection."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ...model.selection_policy import SelectionPolicy, Span
from ..completion import Completion
from ..params import SamplingParams
from ..recording import Recording
from ..report.page import html_page
from ..server.service.service import Busy, Service

T = TypeVar("T")
BUDGET = 512 << 20  # bytes of all recordings together


class Recordings:
    """Recordings by run id. The least recently used are dropped.

    The page chooses the id at random. It is also in the conversation that the browser stores and exports.
    """

    def __init__(self) -> None:
        self._recordings: OrderedDict[str, tuple[Recording, SamplingParams]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, run_id: str, recording: Recording, params: SamplingParams) -> None:
        """params: the answer's sampling parameters with their seed."""
        with self._lock:
            self._recordings[run_id] = recording, params
            while len(self._recordings) > 1 and sum(r.bytes for r, _ in self._recordings.values()) > BUDGET:
                self._recordings.popitem(last=False)

    def find(self, run_id: Any) -> tuple[Recording, SamplingParams] | None:
        with self._lock:
            if not isinstance(run_id, str) or run_id not in self._recordings:
                return None
            self._recordings.move_to_end(run_id)
            return self._recordings[run_id]

    # The page calls the methods below. They return None for a recording that is not, or no longer, in memory.

    def header(self, run_id: Any) -> dict[str, Any] | None:
        return self._part(run_id, Recording.header)

    def totals(self, run_id: Any) -> dict[str, Any] | None:
        return self._part(run_id, Recording.totals)

    def selection(self, run_and_index: Any) -> dict[str, Any] | None:
        """Return the selection of one answer token. `run_and_index`: [run id, index of the token in the answer]."""
        match run_and_index:
            case [run_id, int(index)]:
                return self._part(run_id, lambda found: found.selection(index) if 0 <= index < found.count else None)
        return None

    def report(self, run_id: Any) -> str | None:
        """Return the recording as a page of one file, the same as the command line's."""
        return self._part(run_id, html_page)

    def _part(self, run_id: Any, part: Callable[[Recording], T]) -> T | None:
        found = self.find(run_id)
        return part(found[0]) if found else None


log = logging.getLogger(__name__)

FAILED = "The experiment failed. The server's log says why."
MOST_SPANS = 64


class Experiments:
    """The page calls `mass`, `replay` and `progress`. They return None for a recording that is not, or no longer, in memory."""

    def __init__(self, service: Service, recordings: Recordings) -> None:
        self._service, self._recordings = service, recordings
        self._progress: dict[str, float] = {}  # by ticket, which the page makes
        self._lock = threading.Lock()  # one experiment at a time: each takes the whole engine for a while

    def mass(self, run_id: Any) -> dict[str, Any] | None:
        """Measure how much of dense attention's mass the recorded selections catch; see Recording.mass."""
        found = self._recordings.find(run_id)
        if found is None:
            return None
        try:
            with self._lock:
                self._measure(found[0])
        except (ValueError, Busy, TimeoutError):
            return None
        except Exception:
            log.exception("measuring an answer failed")
            return None
        return found[0].mass()

    def progress(self, ticket: Any) -> float | None:
        """Return the computed share of an experiment's tokens."""
        return self._progress.get(ticket) if isinstance(ticket, str) else None

    def replay(self, request: Any) -> dict[str, Any] | None:
        """`request`: {run, ticket, change: {selector, topk, forbidden, pinned, everywhere}} → the other answer, its seconds, and
        the log-probabilities of the recorded answer's tokens before and after; or {error}."""
        if not isinstance(request, Mapping) or not isinstance(request.get("change"), Mapping):
            return None
        found, ticket = self._recordings.find(request.get("run")), str(request.get("ticket"))[:64]
        if found is None:
            return None
        recording, params = found
        try:
            policy = read_policy(request["change"], recording)
            with self._lock:
                return self._replay(recording, params, policy, ticket)
        except (ValueError, Busy, TimeoutError) as error:
            return {"error": str(error)}
        except Exception:
            log.exception("an experiment failed")
            return {"error": FAILED}
        finally:
            self._progress.pop(ticket, None)

    def _replay(
        self, recording: Recording, params: SamplingParams, policy: SelectionPolicy, ticket: str
    ) -> dict[str, Any]:
        before = self._measure(recording)
        started = time.perf_counter()
        completion = self._answer(recording, params, policy, ticket)

        def second_half(done: int, of: int) -> None:
            self._progress[ticket] = 0.5 + 0.5 * done / of

        answer = recording.answer[: recording.count]
        scores = self._service.score_answer(recording.prompt, answer, policy, progress=second_half)
        return {
            "text": completion.text,
            "same": completion.token_ids == recording.answer,
            "before": before,
            "after": [round(each.logprob, 4) for each in scores.logprobs],
            "seconds": time.perf_counter() - started,
        }

    def _answer(self, recording: Recording, params: SamplingParams, policy: SelectionPolicy, ticket: str) -> Completion:
        params = replace(params, max_tokens=max(64, 2 * len(recording.answer)))
        with self._service.stream(recording.prompt, params, policy=policy) as stream:
            while True:
                delta = stream.poll(0.1)
                if delta is None:
                    self._progress[ticket] = 0.5 * stream.computed / len(recording.prompt)
                elif delta.completion is not None:
                    if delta.completion.error is not None:
                        raise RuntimeError(delta.completion.error)
                    return delta.completion

    def _measure(self, recording: Recording) -> list[float]:
        """Return the log-probabilities of the recorded tokens, which are measured once."""
        if recording.logprobs is None:
            policy = SelectionPolicy(len(recording.prompt) - 1, measure=True)
            answer = recording.answer[: recording.count]
            scores = self._service.score_answer(recording.prompt, answer, policy)
            recording.measured([each.logprob for each in scores.logprobs], scores.selections)
        assert recording.logprobs is not None
        return recording.logprobs


def read_policy(change: Mapping[str, Any], recording: Recording) -> SelectionPolicy:
    """Read the policy that the page's controls describe. ValueError for anything else."""
    topk, selector = change.get("topk"), change.get("selector")
    start = 0 if change.get("everywhere") is True else recording.question
    if selector != "dense" and topk is None:  # "all"
        selector = "dense"
    return SelectionPolicy(
        start,
        selector,  # type: ignore[arg-type]  # the policy checks it
        None if selector == "dense" else topk,
        _spans(change, "forbidden"),
        _spans(change, "pinned"),
    )


def _spans(change: Mapping[str, Any], name: str) -> tuple[Span, ...]:
    spans = change.get(name, [])
    if not isinstance(spans, list) or len(spans) > MOST_SPANS or not all(isinstance(each, list) for each in spans):
        raise ValueError(f"{name} is {spans!r:.50}; expected a list of at most {MOST_SPANS} spans")
    return tuple(tuple(each) for each in spans)
