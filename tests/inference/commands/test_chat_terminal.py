"""Typing and pasting: prompt_toolkit reads the bytes that a terminal sends."""

import json
import os
import stat

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from deepseek_v32.inference.commands import chat_loop
from deepseek_v32.inference.commands.chat_loop import (
    CommandCompleter,
    FileHistory,
    Interrupted,
    TerminalInput,
    history_path,
)

PASTE, END = "\x1b[200~", "\x1b[201~"  # xterm's control sequences, "Bracketed Paste Mode"
UP = "\x1b[A"


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def typed(state):
    """The messages that come of these key strokes, each of which ends one."""

    def typed(*keys, history=True):
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            source = TerminalInput(history)
            messages = []
            for each in keys:
                pipe.send_bytes(each.encode("utf-8", "surrogateescape"))
                messages.append(source.read())
            return messages

    return typed


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("one\r", "one"),
        (f"{PASTE}a\nb\r\nc\rd\n{END}\r", "a\nb\nc\nd"),
        (f"{PASTE}/clear\n/exit{END}\r", "/clear\n/exit"),
        (f"{PASTE}x = 1 \\\n + 2\\\n{END}\r", "x = 1 \\\n + 2\\"),
        (f'{PASTE}"""Docs."""\nimport os\n"""{END}\r', '"""Docs."""\nimport os\n"""'),
        ('"""\r  two\r\rlines\r"""\r', "  two\n\nlines"),
        ('"""one"""\r', "one"),
        ("caf\udce9\r", "caf\ufffd"),
        ("first\\\rsecond\r", "first\nsecond"),
        ("first\x1b\rsecond\r", "first\nsecond"),
    ],
    ids=[
        "typed",
        "pasted",
        "pasted commands",
        "pasted code",
        "docstring",
        "block",
        "short block",
        "not UTF-8",
        "backslash",
        "alt-enter",
    ],
)
def test_a_message(typed, keys, message):
    assert typed(keys, history=False) == [message]


def completed(text):
    found = CommandCompleter().get_completions(Document(text), CompleteEvent(completion_requested=True))
    return [text[: len(text) + each.start_position] + each.text for each in found]


def test_tab(tmp_path):
    (tmp_path / "talk of monday.json").write_text("[]")
    assert completed(f"/load {tmp_path}/ta") == [f"/load {tmp_path}/talk of monday.json"]
    assert completed("/s") == ["/system ", "/set ", "/save "]
    assert completed("/clear") == ["/clear"]
    assert completed("/set max") == ["/set max_tokens"]
    assert completed("/set t") == ["/set temperature", "/set top_p", "/set top_k"]
    assert completed("/think o") == ["/think on", "/think off"]
    assert completed("/set top_p 0") == completed("/nothing ") == completed("hello") == []
    assert completed(f"/save! {tmp_path}/ta") == [f"/save! {tmp_path}/talk of monday.json"]
    assert completed("hello /s") == completed("/set a\n/s") == []


def test_ctrl_c_and_ctrl_d(typed):
    with pytest.raises(Interrupted):
        typed("half\x03")
    assert typed("\x04", history=False) == [None]


def test_history_outlives_the_chat(typed, state):
    assert typed("one\r", f"{PASTE}two\nlines{END}\r", f"{UP}{UP}{UP}\r") == ["one", "two\nlines", "one"]
    assert typed(f"{UP}{UP}{UP}{UP}\r")[-1] == "one", "an up arrow for each line"
    assert stat.S_IMODE(history_path().stat().st_mode) == 0o600 and history_path().is_relative_to(state)
    before = history_path().read_bytes()
    assert typed("secret\r", history=False) == ["secret"] and history_path().read_bytes() == before


def test_history_takes_what_it_finds(state, monkeypatch):
    monkeypatch.setattr(chat_loop, "MOST_ENTRIES", 3)
    path = state / "history"
    path.write_bytes(b'"a"\n{"not": "a text"}\n\xff\xfe\n"cut\n"b"\n')
    path.chmod(0o666)
    assert list(FileHistory(path).load_history_strings()) == ["b"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for number in range(9):
        FileHistory(path).store_string(f"{number}\n\ud800")
    assert list(FileHistory(path).load_history_strings()) == [f"{number}\n\ud800" for number in (8, 7, 6)]
    assert len(path.read_bytes().splitlines()) == 3, "it grows to twice its length and is cut then"
    FileHistory(path).store_string("x" * (chat_loop.LONGEST_ENTRY + 1))
    assert [json.loads(line)[0] for line in path.read_bytes().splitlines()] == ["6", "7", "8"]


def test_without_a_place_for_it_history_lasts_as_long_as_the_chat(state, typed, monkeypatch, capsys):
    (state / "deepseek-v32").write_text("a file is in the way")
    assert typed("one\r", f"{UP}\r") == ["one", "one"]
    assert "No history is kept: " in capsys.readouterr().err
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(state))
    assert history_path() == state / ".local" / "state" / "deepseek-v32" / "history.jsonl"


def test_what_is_typed_during_an_answer_is_not_echoed_and_not_lost(monkeypatch, capsys):
    import termios

    master, slave = os.openpty()
    before = termios.tcgetattr(slave)
    monkeypatch.setattr("sys.stdin", os.fdopen(slave))
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        source = TerminalInput(keep_history=False)
    with pytest.raises(KeyError), source.answering():
        flags = termios.tcgetattr(slave)[3]
        assert not flags & (termios.ECHO | termios.ICANON) and flags & termios.ISIG and flags & termios.NOFLSH
        assert capsys.readouterr().out == chat_loop.BRACKETED_PASTE
        raise KeyError
    assert capsys.readouterr().out == chat_loop.PLAIN_PASTE
    assert termios.tcgetattr(slave) == before
    os.close(master)
