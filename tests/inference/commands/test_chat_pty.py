"""The program in a pseudo-terminal, from the first prompt to Ctrl-D."""

import codecs
import fcntl
import os
import re
import select
import subprocess
import sys
import termios
import time

import pytest

PROGRAM = """
from deepseek_v32.inference.commands import loading
from support.chain_model import make_llm
loading.load_llm = lambda *_, **__: make_llm(("</think>", "Hey 🙂, two"), seconds=0.04)
from deepseek_v32.inference.cli import main
main()
"""
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])")


class Terminal:
    """A program on a pseudo-terminal, as its user sees it: what it writes, without escape sequences."""

    def __init__(self, command, **environment):
        self.master, slave = os.openpty()
        termios.tcsetwinsize(slave, (40, 100))

        def take_terminal():
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

    def wait_for(self, text, seconds=30):
        """What came up to this text, which is taken out."""
        end = time.monotonic() + seconds
        while text not in (clean := ESCAPES.sub("", self.seen)):
            ready, _, _ = select.select([self.master], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} did not come; there is {clean[-2000:]!r}"
            self.seen += self.decoder.decode(os.read(self.master, 65536))
        before, _, self.seen = clean.partition(text)
        return before

    def send(self, keys):
        os.write(self.master, keys.encode())


@pytest.mark.heavy
def test_a_chat_in_a_terminal(tmp_path):
    terminal = Terminal([sys.executable, "-c", PROGRAM, "generate"], XDG_STATE_HOME=str(tmp_path))
    try:
        terminal.wait_for(">>>")
        terminal.send("\x1b[200~one\ntwo\x1b[201~\r")
        terminal.wait_for("Hey 🙂, two")
        terminal.wait_for("tokens/s")
        terminal.wait_for(">>>")
        terminal.send("/retry\r")
        terminal.wait_for("Hey")
        terminal.send("\x1b[200~/set\x1b[201~\x03")  # pasted during the answer, then Ctrl-C
        assert "two" not in terminal.wait_for("stopped")
        terminal.wait_for(">>>")
        terminal.send("\r")
        terminal.wait_for("temperature 1.0")
        terminal.wait_for(">>>")
        terminal.send("\x1b[A\x1b[A\r")  # back to /retry
        terminal.wait_for("Hey 🙂, two")
        terminal.wait_for(">>>")
        terminal.send(f"/save {tmp_path}/talk.json\r")
        terminal.wait_for("2 messages saved")
        terminal.wait_for(">>>")
        terminal.send("\x04")
        assert terminal.process.wait(20) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
    assert '"one\\ntwo"' in (tmp_path / "talk.json").read_text()
