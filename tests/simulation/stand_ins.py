"""Stand-ins for threads, the clients' event loop and grammars, and an observer that may fail."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from deepseek_v32.inference.completion import Delta
from deepseek_v32.inference.text.grammar import Mask
from simulation.model import EOS, VOCABULARY, forbidden


class Turns:
    """Takes the place of threading.Thread: the schedule says when the engine's thread runs; `join` lets it run to its end."""

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
        self.join = target

    def start(self) -> None:
        pass

    def is_alive(self) -> bool:
        return True


class SimulatedGrammars:
    """Takes the place of GrammarCompiler."""

    def compile(self, params: object) -> "SimulatedGrammar":
        return SimulatedGrammar()


class SimulatedGrammar:
    """Stands in for Grammar; `forbidden` says which token it refuses. It checks that callers keep the contract: each output
    that it is asked about continues the one that it knows, or takes some of its tokens back."""

    def __init__(self) -> None:
        self._known: list[int] = []

    def write_mask(self, tokens: Sequence[int], first: int, mask: Mask, may_end: bool) -> None:
        output = list(tokens[first:])
        shared = min(len(self._known), len(output))
        assert self._known[:shared] == output[:shared], "an output has changed under its grammar"
        assert EOS not in output, "a mask after the end"
        self._known = output
        mask.words[:] = (1 << VOCABULARY) - 1 & ~(1 << forbidden(output))


class Loop:
    """Takes the place of clients' event loop: callbacks wait until the schedule lets it run."""

    def __init__(self, point: Callable[[str], None]) -> None:
        self._point = point
        self._callbacks: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        self._point("delivery")
        self._callbacks.append((callback, args))

    def is_closed(self) -> bool:
        return False

    def run(self) -> None:
        while self._callbacks:
            callback, args = self._callbacks.popleft()
            callback(*args)


class Watcher:
    """An observer of the service. It fails now and then, which must change nothing."""

    def __init__(self, point: Callable[[str], None]) -> None:
        self._point = point
        self.ended: Counter[int] = Counter()  # by request id

    def delivers(self, delta: Delta, seconds: float, since_token: float | None) -> None:
        self.ended[delta.request_id] += delta.finish_reason is not None
        self._point("observer")
