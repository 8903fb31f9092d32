"""An open request of the service, and how it ends without the engine."""

from dataclasses import dataclass, replace

from ...completion import Completion, Delta, ErrorCode, Timings, Usage
from ...params import Request
from .streams import Inbox

TIMED_OUT = "the request has passed its deadline"
STOPPED = "the server has stopped"
STEP_FAILED = "the step that computed this answer failed"

_CODES: dict[str, ErrorCode] = {TIMED_OUT: "deadline", STOPPED: "stopped"}


@dataclass
class Entry:
    """An open request. Times are in seconds of EngineThread.clock."""

    request: Request
    inbox: Inbox
    submitted: float
    deadline: float
    last_token: float | None = None
    # Why the service cancelled it; None otherwise.
    failure: str | None = None


def with_failure(delta: Delta, failure: str | None) -> Delta:
    """The delta for the caller: a cancellation by the service is an error; a request that finished in time is unchanged."""
    if failure is None or delta.finish_reason != "abort" or delta.completion is None:
        return delta
    completion = replace(delta.completion, finish_reason="error", error=failure, error_code=_CODES.get(failure))
    return replace(delta, finish_reason="error", completion=completion)


def error_delta(request: Request, error: str) -> Delta:
    """The last delta of a request that the engine does not know or cannot end."""
    usage = Usage(len(request.prompt), request.output_count, request.cached_tokens or 0)
    timings, code = Timings(None, 0.0, None, 1.0), _CODES.get(error)
    completion = Completion("", request.output, "error", usage, timings, error=error, error_code=code)
    return Delta(request.id, finish_reason="error", completion=completion)
