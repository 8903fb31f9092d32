"""Encoding of prompts beside the event loop, with a bound on what is encoded at a time."""

import math
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from ..service.admission import Busy

Result = TypeVar("Result")

# Characters. Encoding takes about 0.1 s of a core and 30 MB for a text of this length, 3 s and 1 GB for one of 8 MB.
LONG_TEXT = 2**18
MAX_OPEN = 4 * 2**23
CHARACTERS_PER_SECOND = 2**21


class EncodingQueue:
    """Runs what encodes prompts in threads; the tokenizer leaves the interpreter to others meanwhile.

    Long texts are encoded one at a time, so that short ones go past them. All open texts together have at most MAX_OPEN characters.
    """

    def __init__(self) -> None:
        # Requests whose prompts are being encoded. They will take places in the service's queue.
        self.places = 0
        self._open = 0
        self._long = CapacityLimiter(1)
        self._short = CapacityLimiter(8)

    async def run(self, size: int, work: Callable[[], Result], places: int = 0) -> Result:
        """The result of `work`, which encodes a text of `size` characters for `places` requests. Raises Busy, and its errors."""
        if self._open and self._open + size > MAX_OPEN:
            raise Busy(
                f"{self._open} characters of other prompts are being encoded; expected at most {MAX_OPEN} with this one",
                retry_after=math.ceil(self._open / CHARACTERS_PER_SECOND),
            )
        self._open += size
        self.places += places
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._long if size > LONG_TEXT else self._short)
        finally:
            self._open -= size
            self.places -= places
