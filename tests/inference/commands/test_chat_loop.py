"""The chat's commands: what each does to the conversation, the settings and the files."""

import json
from contextlib import nullcontext

import pytest

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.commands.chat_loop import ChatLoop, Interrupted
from deepseek_v32.inference.commands.chat_session import COMMANDS, ChatSession, help_text
from deepseek_v32.model.demo.sample_chats import CALLS, WEATHER
from support.chain_model import make_llm

ANSWER = "Hey 🙂, two"
CHAIN = make_llm(("</think>", ANSWER), ("<think>", "fix\nmug</think>"))
GREEDY = SamplingParams(temperature=0)
HI = {"role": "user", "content": "Hi"}
REPLY = {"role": "assistant", "content": ANSWER}
CTRL_C = object()


class Script:
    """A ChatInput that reads from a list, and notes the prompts."""

    def __init__(self, messages):
        self.messages, self.prompts = list(messages), []

    def read(self, prompt=">>> "):
        self.prompts.append(prompt)
        message = self.messages.pop(0) if self.messages else None
        if message is CTRL_C:
            raise Interrupted
        return message

    def answering(self):
        return nullcontext()


@pytest.fixture
def chat(capsys):
    """Runs a chat of these messages; returns the session, standard output and standard error."""

    def chat(*messages, llm=CHAIN, session=None, **arguments):
        session = session or ChatSession(llm, GREEDY, **arguments)
        ChatLoop(session, Script(messages)).run()
        return session, *capsys.readouterr()

    return chat


def test_what_is_asked_is_the_conversation_so_far(chat, monkeypatch):
    asked = []
    monkeypatch.setattr(
        CHAIN, "chat_token_ids", lambda *given: asked.append(given) or LLM.chat_token_ids(CHAIN, *given)
    )
    session, out, _ = chat("Hi", "Hi", "/undo", "/think on", "/system Be brief.", "Hi")
    system = {"role": "system", "content": "Be brief."}
    assert [given[0] for given in asked] == [[HI], [HI, REPLY, HI], [system, HI, REPLY, HI]]
    assert [given[1] for given in asked] == [False, False, True]
    assert session.messages[-1] == {**REPLY, "reasoning_content": "fix\nmug"}
    assert out.count(ANSWER) == 3 and out.count("fix\nmug") == 1


def test_retry_asks_the_same_once_more(chat):
    session, out, _ = chat("Hi", "/retry", "/retry")
    assert session.messages == [HI, REPLY] and out.count(ANSWER) == 3
    before = ChatSession(CHAIN, GREEDY)
    assert "nothing has been asked" in chat("/retry", "/undo", session=before)[2]
    long = {"role": "user", "content": "abc " * 600}
    session, out, err = chat("Hi", long["content"], "/retry", "/undo")
    assert err.count("expected at most") == 2, "a message that was refused is asked again"
    assert session.messages == [] and out.count(ANSWER) == 1


def test_a_command_that_takes_no_argument_refuses_one(chat):
    session, out, err = chat("Hi", "/retry now", "/undo 2", "/clear all")
    assert session.messages == [HI, REPLY] and out.count(ANSWER) == 1
    for typed in ("/retry is now", "/undo is 2", "/clear is all"):
        assert f"what follows {typed}; expected nothing" in err


def test_what_was_saved_is_loaded(chat, tmp_path):
    file = tmp_path / "talk.json"
    chat("Hi", f"/save {file}", system="Be brief.")
    assert json.loads(file.read_text()) == [{"role": "system", "content": "Be brief."}, HI, REPLY]
    session, _, err = chat("Something else", f"/load {file}", "/clear", f"/load {file}", "Hi")
    assert "3 messages loaded" in err
    assert [message["content"] for message in session.messages] == ["Be brief.", "Hi", ANSWER, "Hi", ANSWER]
    file.write_text(json.dumps([HI]))  # by hand: a question without its answer
    assert chat(f"/load {file}", "/retry")[0].messages == [HI, REPLY]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("\ufffe", "not JSON"),
        ("{}", "holds no messages"),
        ("[]", "holds no messages"),
        ('[{"role": "user"}]', "holds no messages"),
        ('[{"role": "robot", "content": "x"}]', "robot"),
        ('[{"role": "tool", "content": "x"}]', "tool"),
        ('[{"role": "assistant", "content": "x", "tool_calls": 5}]', "tool_calls"),
    ],
)
def test_files_that_save_has_not_written_change_nothing(chat, tmp_path, content, reason):
    file = tmp_path / "talk.json"
    file.write_text(content, encoding="utf-16" if content == "\ufffe" else "utf-8")
    session, _, err = chat("Hi", f"/load {file}", f"/load {tmp_path}", "/load", "/load /nowhere/x", "/save")
    assert session.messages == [HI, REPLY]
    refusal = [line for line in err.splitlines() if line.startswith("Not done: ")]
    assert len(refusal) == 5 and reason in refusal[0] and "/load needs a file name" in refusal[2]


def test_a_file_that_exists_is_replaced_only_on_request(chat, tmp_path):
    """A chat may write again to a file that it has written or loaded itself; /save! and /inspect! replace any file."""
    talk, page = tmp_path / "talk.json", tmp_path / "read.html"
    talk.write_text("mine"), page.write_text("mine")
    _, _, err = chat("Hi", f"/save {talk}", f"/inspect {page}")
    for command, file in (("/save", talk), ("/inspect", page)):
        assert f"Not done: {file} exists; expected a new name, or {command}! {file} to replace it" in err
        assert file.read_text() == "mine"
    _, _, err = chat("Hi", f"/save! {talk}", f"/inspect! {page}", "Ho", f"/save {talk}", f"/inspect {page}")
    assert "Not done" not in err and len(json.loads(talk.read_text())) == 4 and page.stat().st_size > 10_000
    chat(f"/load {talk}", "/undo", f"/save {talk}")
    assert json.loads(talk.read_text()) == [HI, REPLY]


def test_clear_keeps_the_system_message_and_says_so(chat):
    session, _, err = chat("Hi", "/clear", system="Be brief.")
    assert "The conversation is forgotten; its system message stays." in err
    assert session.messages == [{"role": "system", "content": "Be brief."}]
    assert "The conversation is forgotten.\n" in chat("Hi", "/clear")[2]


def test_settings_are_those_of_sampling(chat):
    commands = ("/set temperature 0.5", "/set seed 7", "/set --max-new-tokens 3", "/set stop two", "/set top_k 5")
    session, _, err = chat(*commands, "/set", "Hi")
    expected = SamplingParams(temperature=0.5, seed=7, max_tokens=3, stop=("two",), top_k=5)
    assert session.params == expected and "top_k 5" in err and "stopped at the length limit" in err
    session, *_ = chat("/set seed none", "/set stop none", '/set stop ["a", "b"]', session=session)
    assert (session.params.seed, session.params.stop) == (None, ("a", "b"))
    _, _, err = chat(
        "/set top_p 2", "/set heat 1", "/set seed", "/set temperature hot", "/set stop [3]", session=session
    )
    for part in (
        "top_p is 2; expected above 0",
        "setting is heat",
        "has no value",
        "is 'hot'; expected a",
        "stop holds 3",
    ):
        assert f"{part}" in err
    assert (session.params.top_p, session.params.temperature) == (1.0, 0.5)


def test_the_latest_answer_is_inspected(chat, tmp_path):
    file, page = tmp_path / "read.json", tmp_path / "read.html"
    _, _, err = chat("/inspect x.json", "Hi", f"/inspect {file}", f"/inspect {page}", "/inspect a.txt", "/clear")
    assert "there is no answer yet" in err and "ends in .json or .html" in err and page.stat().st_size > 10_000
    tokens = json.loads(file.read_text())["tokens"]
    assert "".join(token["token"] for token in tokens).startswith(ANSWER)
    assert json.loads(file.read_text())["about"] == {"precision": "exact", "temperature": 0, "top_p": 1.0}
    talk = tmp_path / "talk.json"
    for forgotten in ((f"/save {talk}", f"/load {talk}"), ("Ho", "/undo")):
        _, _, err = chat("Hi", *forgotten, f"/inspect! {page}")
        assert "/load and /undo forget the tokens of the latest answer; /retry makes it once more" in err


def test_a_slash_alone_makes_no_command_of_a_pasted_text(chat):
    session, out, err = chat("/etc/hosts\n/etc/passwd", "/bogus", "/retry", CTRL_C, "", "  ", "/exit", "never")
    assert [message["role"] for message in session.messages] == ["user", "assistant"]
    assert "/bogus is not a command" in err and "/exit or Ctrl-D leaves." in err and out.count(ANSWER) == 2


@pytest.mark.parametrize("message", ["Exit", " quit ", "bye"])
def test_who_wants_to_leave_is_told_how(chat, message):
    session, _, err = chat("Hi", message, "/bye", "never")
    assert [each["content"] for each in session.messages] == ["Hi", ANSWER, message, ANSWER]
    assert err.count("/exit or Ctrl-D leaves.") == 1


def test_every_command_is_listed():
    assert all(f"{name} " in help_text() for name in COMMANDS)
    assert all(len(line) <= 80 for line in help_text().splitlines())


@pytest.mark.heavy
def test_functions_are_called_and_answered(chat):
    """The demo calls functions: the call is shown without marks, and the answer uses the returned value."""
    llm = LLM()
    session, out, _ = chat(CALLS, "21 degrees and sunny", "18 degrees and rain", llm=llm, tools=[WEATHER])
    calls = [call["function"] for call in session.messages[1]["tool_calls"]]
    assert calls and all(f"{call['name']}({call['arguments']})" in out for call in calls)
    assert "DSML" not in out and "21 degrees" in out.splitlines()[-1]
    assert [message["role"] for message in session.messages] == [
        "user",
        "assistant",
        *["tool"] * len(calls),
        "assistant",
    ]
    session, _, err = chat(CALLS, CTRL_C, "/undo", llm=llm, tools=[WEATHER])
    assert "The call is not answered" in err and not session.messages
