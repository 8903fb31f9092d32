"""The program in a pseudo-terminal: a chat from the first prompt to Ctrl-D, and a file of prompts that is interrupted."""

import json
import sys

import pytest

from support.job import ENVIRONMENT
from support.terminal import Terminal

# An answer takes ten steps, also four at a time. After "Hey" in the second answer, it waits for Ctrl-C, unless that has come.
PROGRAM = """
import itertools, time
from deepseek_v32.inference.commands import loading
from support.chain_model import make_llm

def wait():
    is_fourteenth = next(steps) == 13
    while is_fourteenth and not (llm.engine._aborted or llm.engine.stats().finished.get("abort")):
        time.sleep(0.01)

llm, steps = make_llm(("</think>", "Hey 🙂, two"), max_sequences=4), itertools.count()
llm.model.before_step = wait
loading.load_llm = lambda *_, **__: llm
from deepseek_v32.inference.commands.cli import main
main()
"""
COMMAND = [sys.executable, "-c", PROGRAM, "generate"]


@pytest.mark.heavy
def test_a_chat_in_a_terminal(tmp_path):
    with Terminal(COMMAND, XDG_STATE_HOME=str(tmp_path)) as terminal:
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
    assert '"one\\ntwo"' in (tmp_path / "talk.json").read_text()


@pytest.mark.heavy
def test_ctrl_c_in_a_chat_of_two_ranks_stops_the_answer_alone(tmp_path):
    """Ctrl-C stops only the answer, twice; the next one is whole, and the job ends in order."""
    command = [
        sys.executable,
        "-m",
        "deepseek_v32.inference.generate",
        "--tensor-parallel-size",
        "2",
        "--temperature",
        "0",
    ]
    question = "The van comes at 8:30. When does the van come?\r"
    with Terminal([*command, "--device", "cpu"], **ENVIRONMENT, XDG_STATE_HOME=str(tmp_path)) as terminal:
        terminal.wait_for(">>>", 90)
        terminal.send("/set min_tokens 900\r")
        terminal.wait_for("min_tokens is 900")
        for _ in range(2):
            terminal.wait_for(">>>")
            terminal.send(question)
            terminal.wait_for("You said")
            terminal.send("\x03")
            terminal.wait_for("stopped")
        terminal.wait_for(">>>")
        terminal.send("/set min_tokens 0\r")
        terminal.wait_for(">>>")
        terminal.send(question)
        terminal.wait_for("You said: The van comes at 8:30")
        assert "stopped" not in terminal.wait_for(">>>")
        terminal.send("\x04")
        assert terminal.process.wait(30) == 0


@pytest.mark.heavy
def test_a_file_of_prompts_is_interrupted(tmp_path):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"prompt": f"number {number}"}) + "\n" for number in range(12)))
    with Terminal([*COMMAND, "--input-file", str(source), "--output", str(output)]) as terminal:
        terminal.wait_for("Answering")
        terminal.wait_for("4/12")
        terminal.send("\x03")
        said = terminal.wait_for(f"answers are in {output}; the same command goes on there")
        assert terminal.process.wait(20) == 130
    answered = [json.loads(line)["id"] for line in output.read_text().splitlines()]
    assert len(answered) == 4 and said.endswith(f"{len(answered)} of 12 ")
