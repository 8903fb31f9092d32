"""A program in a pseudo-terminal."""

import codecs
import fcntl
import os
import re
import select
import subprocess
import sys
import termios
import time
from types import TracebackType
from typing import Self

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])")


class Terminal:
    """A program on a pseudo-terminal, as its user sees it: what it writes, without escape sequences."""

    def __init__(self, command: list[str], **environment: str) -> None:
        self.master, slave = os.openpty()
        termios.tcsetwinsize(slave, (40, 100))

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=take_terminal,
            env={
                **os.environ,
                "TERM": "xterm-256color",
                "PROMPT_TOOLKIT_NO_CPR": "1",
                "PYTHONPATH": os.pathsep.join(sys.path),
                **environment,
            },
        )
        os.close(slave)
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.seen = ""

    def wait_for(self, text: str, seconds: float = 30) -> str:
        """Wait for this text; return and remove everything up to it."""
        end = time.monotonic() + seconds
        while text not in (clean := ESCAPES.sub("", self.seen)):
            ready, _, _ = select.select([self.master], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} did not come; there is {clean[-2000:]!r}"
            self.seen += self.decoder.decode(os.read(self.master, 65536))
        before, _, self.seen = clean.partition(text)
        return before

    def send(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
