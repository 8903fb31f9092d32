"""A fault: a call that raises, once or wherever it is about one request."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.request import Request
from deepseek_v32.inference.engine.running import runner

from .fault_points import Point


class Injection:
    """Raises at one call of a point's function; where the point is about one request, at every call about the victim."""

    def __init__(
        self, point: Point, at: int, after: bool, error: type[BaseException], engine: Engine, victim: Request
    ) -> None:
        """at: the number of the call, or of the victim's tokens before which it is spared."""
        self.point, self.at, self.after, self.error = point, at, after, error
        self.engine, self.victim = engine, victim
        self.struck = False
        self.step: set[int] = set()  # the requests of the step in which it has struck
        self._calls = 0
        self._launching: set[int] = set()  # the requests of the step that is being launched

    @contextmanager
    def installed(self) -> Iterator[None]:
        owner, name = self.point.owner, self.point.attribute
        installed = True  # a bucket of decodes keeps the function that it was made with
        run, own, work = runner.Runner.run, owner.__dict__[name], getattr(owner, name)

        def faulty(*arguments: Any, **keywords: Any) -> Any:
            chosen = installed and self._chooses(arguments)
            if chosen and self.point.instead is not None:
                self.struck = True
                if (result := self.point.instead()) is not None:
                    return result
            elif chosen and not self.after:
                self._strike()
            result = work(*arguments, **keywords)
            if chosen and self.point.instead is None:
                self._strike()
            return result

        patched = faulty

        def noting(instance: Any, batch: Any, *arguments: Any) -> Any:
            self._launching = {request.id for request in batch.requests}
            try:
                return (patched if name == "run" and owner is runner.Runner else run)(instance, batch, *arguments)
            except Exception:
                if self.point.where == "experts":  # the step that needed what a thread could not read
                    self.step |= self._launching
                raise
            finally:
                self._launching = set()

        setattr(owner, name, staticmethod(faulty) if isinstance(own, classmethod) else faulty)
        runner.Runner.run = noting  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            installed = False
            setattr(owner, name, own)
            runner.Runner.run = run  # type: ignore[method-assign]

    def _chooses(self, arguments: tuple[Any, ...]) -> bool:
        if self.point.concerns is not None:
            return self.victim.output_count >= self.at and self.point.concerns(self.victim, arguments)
        self._calls += self.point.only(*arguments)
        return self.point.only(*arguments) and self._calls == self.at + 1

    def _strike(self) -> None:
        self.struck = True
        if self.point.where == "experts":
            raise OSError(errno.EIO, f"injected at {self.point.name}")
        in_flight = self.engine._in_flight
        self.step |= self._launching or ({each.id for each in in_flight.batch.requests} if in_flight else set())
        raise self.error(f"injected at {self.point.name}")
