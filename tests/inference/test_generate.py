"""The generate, bench and doctor commands, with a model that always gives the same answer."""

import errno
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.commands import cli, files, loading
from deepseek_v32.inference.commands.answer_file import open_answers
from deepseek_v32.inference.commands.prompts import Prompt, read_prompts
from deepseek_v32.inference.commands.terminal import dim, visible
from deepseek_v32.inference.text.grammar import StructuredOutputsParams
from support.chain_model import make_llm

ANSWER = "Hey 🙂, two"
# `</think>` ends the prompt of an answer without reasoning, and the reasoning of one with it.
LLM = make_llm(("</think>", ANSWER), ("<think>", "fix\nmug</think>"))
NO_TEXT = make_llm(("</think>", ANSWER), tokenized=False)


@pytest.fixture
def run(monkeypatch):
    """Runs the command line; returns (exit code, standard output, standard error)."""

    def run(*arguments, llm=LLM, stdin=""):
        monkeypatch.setattr(loading, "load_llm", lambda *_, **__: llm)
        code = []
        with monkeypatch.context() as patch:
            patch.setattr("sys.exit", code.append)
            result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments], input=stdin)
            if isinstance(result.exception, ValueError | OSError):

                def fail():
                    raise result.exception

                cli.run(fail)
        return (code or [result.exit_code])[-1], result.stdout, result.stderr

    return run


def test_standard_output_is_the_answer_alone(run):
    code, out, err = run("generate", "1+1?")
    assert (code, out) == (0, ANSWER + "\n")
    assert "tokens/s" in err and "prompt" in err and err.count("\n") == 1


def test_reasoning_goes_to_standard_error(run):
    code, out, err = run("generate", "1+1?", "--thinking")
    assert (code, out) == (0, ANSWER + "\n")
    assert err.startswith("fix\nmug\n")


def test_json_is_one_object(run):
    code, out, _ = run("generate", "1+1?", "--thinking", "--json", "--seed", 3)
    answer = json.loads(out)
    assert code == 0 and out.count("\n") == 1
    assert answer["text"] == ANSWER and answer["reasoning_content"] == "fix\nmug"
    assert answer["finish_reason"] == "stop" and answer["usage"]["completion_tokens"] > 3
    assert set(answer["timings"]) >= {"time_to_first_token", "tokens_per_second"}


@pytest.mark.parametrize("arguments, stdin", [(["generate"], b"caf\xe9"), (["generate", "caf\udce9"], b"")])
def test_bytes_of_a_prompt_that_are_not_utf8_are_replaced(run, arguments, stdin):
    code, out, _ = run(*arguments, "--json", stdin=stdin)
    _, same, _ = run("generate", "--json", "caf\N{REPLACEMENT CHARACTER}")
    assert code == 0 and json.loads(out)["usage"] == json.loads(same)["usage"]


@pytest.mark.parametrize("arguments", [["generate"], ["generate", "-"]], ids=["none", "dash"])
def test_the_prompt_may_come_from_standard_input(run, arguments):
    assert run(*arguments, stdin="1+1?\n")[:2] == (0, ANSWER + "\n")


def test_limits_and_stops_are_passed_on(run):
    assert run("generate", "1+1?", "--stop", ", t")[1] == "Hey 🙂\n"
    code, out, err = run("generate", "1+1?", "--max-new-tokens", 2)
    assert code == 0 and ANSWER.startswith(out.strip()) and len(out) < len(ANSWER)
    assert "length limit" in err


def test_raw_prompts_may_spell_control_tokens(run):
    assert run("generate", "--raw", "<｜User｜>Hi</think>")[1] == ANSWER + "\n"
    assert run("generate", "--raw", "no control token")[1] == "\n"


def test_text_files_are_answered_in_order_as_deepseek_prints_them(run, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("\n\nfirst\nwith two lines\n \n\nsecond\n")
    code, out, _ = run("generate", "--input-file", path)
    assert (code, out) == (
        0,
        f"Prompt: first\nwith two lines\nCompletion: {ANSWER}\n\nPrompt: second\nCompletion: {ANSWER}\n\n",
    )
    assert [json.loads(line)["id"] for line in run("generate", "--input-file", path, "--json")[1].splitlines()] == [
        1,
        2,
    ]


def write_lines(path, *values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_jsonl_in_and_out_is_resumed(run, tmp_path):
    source = write_lines(
        tmp_path / "in.jsonl",
        {"id": "a", "prompt": "1+1?"},
        {"messages": [{"role": "user", "content": "2+2?"}], "thinking": True},
        {"id": 7, "prompt": "3+3?", "max_tokens": 1, "temperature": 0},
    )
    out = tmp_path / "out.jsonl"
    assert run("generate", "--input-file", source, "--output", out)[0] == 0
    answers = {answer["id"]: answer for answer in lines(out)}
    assert set(answers) == {"a", 2, 7}
    assert answers["a"]["text"] == ANSWER and answers[2]["reasoning_content"] == "fix\nmug"
    assert (answers[7]["finish_reason"], answers[7]["usage"]["completion_tokens"]) == ("length", 1)

    done = out.read_text().splitlines(keepends=True)
    failed = json.dumps({"id": 7, "finish_reason": "error", "error": "x"}) + "\n"
    out.write_text(next(line for line in done if '"a"' in line) + failed + '{"id": 2, "te')  # killed in a line
    code, _, err = run("generate", "--input-file", source, "--output", out)
    assert code == 0 and "1 of 3 answers" in err
    assert [answer["id"] for answer in lines(out)][:2] == ["a", 7]
    assert sorted(str(answer["id"]) for answer in lines(out)[2:]) == ["2", "7"]

    before = out.read_text()
    assert run("generate", "--input-file", source, "--output", out, llm=None)[0] == 0  # no model is loaded for nothing
    assert out.read_text() == before


def test_token_ids_need_no_tokenizer(run, tmp_path):
    source = write_lines(tmp_path / "in.jsonl", {"token_ids": [5, LLM.tokenizer.special_ids["</think>"]]})
    code, out, _ = run("generate", "--input-file", source, llm=NO_TEXT)
    assert code == 0
    assert json.loads(out)["token_ids"] == [*LLM.tokenizer.encode(ANSWER), *LLM.tokenizer.eos_ids]


def test_a_prompt_that_cannot_be_asked_fails_alone(run, tmp_path):
    source = write_lines(
        tmp_path / "in.jsonl",
        {"id": "long", "prompt": "abc " * 600},
        {"id": "bad", "messages": [{"role": "assistant", "content": "x"}]},
        {"id": "half", "prompt": "\ud800"},
        {"id": "good", "prompt": "1+1?"},
    )
    code, out, err = run("generate", "--input-file", source)
    answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
    assert code == 1 and "3 failed" in err
    assert answers["good"]["text"] == ANSWER
    assert answers["half"]["error"] == f"{source}, line 3: text holds half of a surrogate pair; expected Unicode text"
    assert "line 1" in answers["long"]["error"] and "line 2" in answers["bad"]["error"]


BAD_LINES = {
    "not-json": ("{", "line 1: not valid JSON"),
    "list": ("[]", "expected a JSON object"),
    "no-prompt": ('{"id": 1}', "one of prompt, messages, token_ids"),
    "two-prompts": ('{"prompt": "a", "token_ids": [1]}', "prompt and token_ids; expected one of"),
    "unknown": ('{"prompt": "a", "temprature": 1}', "key is 'temprature'"),
    "type": ('{"prompt": 3}', "prompt is 3; expected a str"),
    "id": ('{"prompt": "a", "id": [1]}', "id is [1]; expected"),
    "sampling": ('{"prompt": "a", "top_p": 2}', "top_p is 2"),
    "thinking": ('{"prompt": "a", "thinking": "no"}', "thinking is 'no'; expected true or false"),
    "token id": ('{"prompt": "a", "logit_bias": {"x": 1}}', "logit_bias holds 'x'; expected token ids"),
    "form": ('{"prompt": "a", "structured_outputs": {"regex": 5}}', "structured_outputs.regex is 5"),
    "twice": ('{"prompt": "a", "id": 5}\n{"prompt": "b", "id": 5}', "line 2: id is 5; expected an id of its own"),
    "same-as-place": ('{"prompt": "a", "id": 2}\n{"prompt": "b"}', "id is 2"),
    "empty": ("\n", "no prompts"),
    "deep": ("[" * 100_000, "not valid JSON"),
}


@pytest.mark.parametrize(("content", "reason"), BAD_LINES.values(), ids=BAD_LINES)
def test_bad_prompt_files_are_refused_before_the_model_is_loaded(run, tmp_path, content, reason, capsys):
    path = tmp_path / "in.jsonl"
    path.write_text(content)
    assert run("generate", "--input-file", path, llm=None)[0] == 2
    message = capsys.readouterr().err
    assert message.startswith("deepseek-v32: ") and reason in message and message.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["hi", "--interactive"],
        ["hi", "--input-file", "x"],
        ["hi", "--output", "x"],
        ["--interactive", "--json"],
        ["hi", "--raw", "--system", "x"],
        ["hi", "--raw", "--thinking"],
        ["hi", "--temperature", "-1"],
        ["hi", "--max-new-tokens", "0"],
        ["--input-file", "/nowhere/x.jsonl"],
        [" "],
        [""],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_user_errors_are_one_line_and_exit_code_2(run, arguments, capsys):
    assert run("generate", *arguments)[0] == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_foreign_output_file_is_not_touched(run, tmp_path, capsys):
    source = write_lines(tmp_path / "in.jsonl", {"prompt": "a"})
    out = tmp_path / "notes.txt"
    out.write_text("my notes\n")
    assert run("generate", "--input-file", source, "--output", out)[0] == 2
    assert "line 1" in capsys.readouterr().err and out.read_text() == "my notes\n"


def test_a_foreign_file_without_a_line_break_is_not_cut(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    with pytest.raises(ValueError, match="last line"):
        open_answers(path)
    assert path.read_text() == "my notes"


def test_two_runs_do_not_share_an_output_file(tmp_path):
    first = open_answers(tmp_path / "out.jsonl")
    with pytest.raises(ValueError, match="another run"):
        open_answers(tmp_path / "out.jsonl")
    first.close()
    open_answers(tmp_path / "out.jsonl").close()


def test_a_run_without_an_answer_leaves_no_file(tmp_path):
    out, link = tmp_path / "out.jsonl", tmp_path / "link"
    open_answers(out).close()
    assert not out.exists()
    link.symlink_to(out)
    open_answers(link).close()
    assert link.is_symlink() and out.exists(), "the link is the user's, as /dev/stdout is the system's"


def test_what_is_no_regular_file_is_written_to(run, tmp_path):
    """A pipe that would be read before it is written hangs; a device such as /dev/zero has no end."""
    source = write_lines(tmp_path / "in.jsonl", {"prompt": "1+1?"})
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert run("generate", "--input-file", source, "--output", pipe)[0] == 0
    reader.join(10)
    assert [json.loads(line)["text"] for line in read] == [ANSWER]
    for device in ("/dev/null", "/dev/zero"):
        assert run("generate", "--input-file", source, "--output", device)[0] == 0
        assert os.path.exists(device) and not os.path.isfile(device)


@pytest.mark.heavy
def test_a_closed_input_is_one_line():
    program = [sys.executable, "-P", "-m", "deepseek_v32.inference.generate"]
    for arguments, closed in ((["--device", "cpu"], 0), (["--interactive", "--output", "x"], 1)):
        ended = subprocess.run(
            [*program, *arguments], capture_output=True, text=True, preexec_fn=lambda fd=closed: os.close(fd)
        )
        assert ended.returncode == 2 and ended.stderr.startswith("deepseek-v32: ") and ended.stderr.count("\n") == 1


def test_each_answer_is_one_write(tmp_path, monkeypatch):
    writes = []
    answers = open_answers(tmp_path / "out.jsonl")
    monkeypatch.setattr(os, "write", lambda file, data: writes.append(bytes(data)) or len(data))
    answers.append({"id": "ü\n", "finish_reason": "stop"})
    answers.close()
    assert writes == ['{"id": "ü\\n", "finish_reason": "stop"}\n'.encode()]


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    """A disk that is nearly full takes a part of a line; the error comes with the next write."""
    whole = os.write
    answers = open_answers(tmp_path / "out.jsonl")
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[:7]))
    answers.append({"id": "a", "finish_reason": "stop"})
    monkeypatch.undo()
    answers.close()
    assert (tmp_path / "out.jsonl").read_text() == '{"id": "a", "finish_reason": "stop"}\n'


def test_a_full_disk_is_one_line_with_the_file(run, tmp_path, monkeypatch, capsys):
    def fail(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    source, out, page = (
        write_lines(tmp_path / "in.jsonl", {"prompt": "1+1?"}),
        tmp_path / "a.jsonl",
        tmp_path / "a.html",
    )
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "write", fail)
        assert run("generate", "--input-file", source, "--output", out)[0] == 2
    assert capsys.readouterr().err == f"deepseek-v32: {out}: No space left on device\n"
    monkeypatch.setattr("pathlib.Path.write_text", fail)
    assert run("generate", "1+1?", "--inspect", page)[0] == 2
    assert capsys.readouterr().err == f"deepseek-v32: {page}: No space left on device\n"


def test_blank_lines_separate_texts_and_windows_files_work(tmp_path):
    path = tmp_path / "p.txt"
    path.write_bytes(b"a\r\nb\r\n\r\n\r\nc\r\n")
    assert [prompt.content for prompt in read_prompts(path)] == ["a\nb", "c"]
    path.write_bytes(b"\xef\xbb\xbfa\r\n")  # Notepad's mark of UTF-8
    assert [prompt.content for prompt in read_prompts(path)] == ["a"]
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_prompts(path)


def test_chat_commands(run, tmp_path):
    saved = tmp_path / "talk.json"
    code, out, err = run(
        "generate",
        "--interactive",
        "--thinking",
        "--system",
        "Be brief.",
        stdin=f"Hi\\\nthere\n\n/save {saved}\n/bogus\n/help\n/clear\n/save {tmp_path}/empty.json\n/save {tmp_path}/a/b\n"
        "/exit\nnever said\n",
    )
    assert code == 0
    assert out.count(ANSWER) == 1 and "fix" in out and "/clear" in out
    assert "/bogus is not a command" in err and "tokens/s" in err
    assert f"Not done: {tmp_path}/a/b: No such file or directory" in err
    assert json.loads(saved.read_text()) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi\nthere"},
        {"role": "assistant", "content": ANSWER, "reasoning_content": "fix\nmug"},
    ]
    assert json.loads((tmp_path / "empty.json").read_text()) == [{"role": "system", "content": "Be brief."}]


def test_bytes_that_are_no_text_are_messages_too(run, tmp_path):
    saved = tmp_path / "talk.json"
    code, out, _ = run("generate", "--interactive", stdin=b"caf\xe9\n\xff\xfe\x00\n/save %s\n" % str(saved).encode())
    assert code == 0 and out.count(ANSWER) == 2
    assert "\ufffd" in json.loads(saved.read_text())[0]["content"]


def test_a_file_without_an_end_is_not_read_for_ever(run, capsys):
    assert run("generate", "Hi", "--tools", "/dev/zero", llm=None)[0] == 2
    assert "/dev/zero has more than 64 MiB" in capsys.readouterr().err
    code, _, err = run("generate", "--interactive", stdin="/load /dev/zero\n")
    assert code == 0 and "/dev/zero has more than 64 MiB" in err


@pytest.mark.parametrize("content", ["{", "{}", "[1]", "[" * 100_000])
def test_files_of_functions_that_are_none(run, tmp_path, content, capsys):
    path = tmp_path / "tools.json"
    path.write_text(content)
    assert run("generate", "Hi", "--tools", path, llm=None)[0] == 2
    message = capsys.readouterr().err
    assert (
        f"--tools is {path}, which" in message
        and "expected a list of functions" in message
        and message.count("\n") == 1
    )


def test_a_message_too_long_is_refused_and_forgotten(run, tmp_path):
    saved = tmp_path / "talk.json"
    code, out, err = run("generate", "--interactive", stdin=f"{'abc ' * 600}\nHi\n/save {saved}\n")
    assert code == 0 and "/clear starts afresh" in err and ANSWER in out
    assert [message["content"] for message in json.loads(saved.read_text())] == ["Hi", ANSWER]


@pytest.fixture
def interrupted():
    """An LLM that gets Ctrl-C in its third step."""
    llm, steps = make_llm(("</think>", ANSWER)), itertools.count(1)
    llm.model.before_step = lambda: next(steps) == 3 and signal.raise_signal(signal.SIGINT)
    return llm


def test_ctrl_c_stops_the_answer_and_not_the_program(run, tmp_path, interrupted):
    saved = tmp_path / "talk.json"
    code, _, err = run("generate", "--interactive", stdin=f"Hi\n/save {saved}\n", llm=interrupted)
    assert code == 0 and "stopped" in err
    answer = json.loads(saved.read_text())[1]["content"]
    assert ANSWER.startswith(answer) and len(answer) < len(ANSWER)
    assert interrupted.stats().running == 0 and interrupted.stats().pages_used == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_on_a_single_answer_ends_with_130(run, interrupted):
    assert run("generate", "Hi", llm=interrupted)[0] == 130


class Terminal:
    def __init__(self, is_terminal):
        self.isatty = lambda: is_terminal


def test_a_terminal_gets_no_escape_sequences_from_the_model():
    text = "a\x1b]0;title\x07b\x9b31mc\td\n"
    assert visible(text, Terminal(True)) == "a\ufffd]0;title\ufffdb\ufffd31mc\td\n"
    assert visible(text, Terminal(False)) == text
    # Unicode's nine bidirectional controls and three marks (UAX 9, section 2).
    for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C):
        assert visible(f"a{chr(code)}b", Terminal(True)) == "a\ufffdb", hex(code)
    kept = "naïve 你好 🙂 עברית العربية क्‍ष \u200d\u200c"
    assert visible(kept, Terminal(True)) == kept
    assert dim("a", Terminal(False)) == "a"


def test_doctor_names_an_implementation_for_every_operation(run):
    from deepseek_v32.kernels.implementations import OPERATIONS

    code, out, _ = run("doctor", "--json", "--device", "cpu")
    report = json.loads(out)
    assert code == 0
    assert [line["operation"] for line in report["operations"]] == list(OPERATIONS)
    assert {line["chosen"] for line in report["operations"]} == {"reference"}
    assert report["packages"]["torch"].startswith("2.")
    code, out, _ = run("doctor", "--device", "cpu", "--backend", "tile")
    assert code == 0 and all(operation in out for operation in OPERATIONS)


def test_doctor_refuses_unknown_devices(run, capsys):
    assert run("doctor", "--device", "toaster")[0] == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_overrides_come_from_files_in_either_spelling(tmp_path):
    ours = tmp_path / "ours.json"
    ours.write_text(json.dumps({"dim": 64, "n_layers": 2, "index_topk": 8, "dtype": "fp8", "n_activated_experts": 2}))
    assert loading.read_overrides(ours, ["index_topk=16", "yarn=null"]) == {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "index_topk": 16,
        "num_experts_per_tok": 2,
        "yarn": None,
    }
    for bad in ("index_topk", "index_topk=many"):
        with pytest.raises(ValueError, match="--config-override"):
            loading.read_overrides(None, [bad])


def test_prompts_know_their_place(tmp_path):
    path = write_lines(tmp_path / "in.jsonl", {"prompt": "a", "seed": 4, "stop": ["x"]})
    assert read_prompts(path) == [Prompt(1, f"{path}, line 1", "a", sampling={"seed": 4, "stop": ["x"]})]


def test_every_field_of_sampling_params_can_be_written_in_a_line(tmp_path):
    biases, form = {"5": -100, "07": 2.5}, {"choice": ["Yes", "No"]}
    path = write_lines(tmp_path / "in.jsonl", {"prompt": "a", "logit_bias": biases, "structured_outputs": form})
    [prompt] = read_prompts(path)
    wanted = SamplingParams(
        logit_bias={5: -100, 7: 2.5}, structured_outputs=StructuredOutputsParams(choice=["Yes", "No"])
    )
    assert SamplingParams(**prompt.sampling) == wanted


def test_what_dsa_selected_goes_into_a_file(run, tmp_path, capsys):
    report = tmp_path / "selected.json"
    code, out, err = run("generate", "1+1?", "--inspect", report)
    assert (code, out) == (0, ANSWER + "\n") and str(report) in err
    tokens = json.loads(report.read_text())["tokens"]
    assert "".join(token["token"] for token in tokens).startswith(ANSWER)
    assert run("generate", "1+1?", "--inspect", tmp_path / "selected.txt", llm=None)[0] == 2
    assert run("generate", "--interactive", "--inspect", report, llm=None)[0] == 2
    assert capsys.readouterr().err.count("\n") == 2
    for place, mention in ((tmp_path / "nowhere" / "out.html", "no folder"), (tmp_path / "folder.json", "is a folder")):
        (tmp_path / "folder.json").mkdir(exist_ok=True)
        assert run("generate", "1+1?", "--inspect", place, llm=None)[0] == 2  # before anything is loaded
        err = capsys.readouterr().err
        assert mention in err and str(place) in err and err.count("\n") == 1


def test_the_log_level_is_that_of_the_package(run, monkeypatch):
    package = logging.getLogger("deepseek_v32")
    for name in ("deepseek_v32", "uvicorn"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    for arguments, level in (((), logging.WARNING), (("--log-level", "debug"), logging.DEBUG)):
        assert run("generate", "1+1?", *arguments)[0] == 0
        assert package.level == level
    assert run("generate", "1+1?", "--log-level", "loud")[0] == 2


def test_bench_measures_every_combination(run):
    arguments = [
        "--prompt-tokens",
        8,
        "--prompt-tokens",
        70,
        "--batch",
        1,
        "--batch",
        3,
        "--new-tokens",
        4,
        "--repeats",
        1,
    ]
    code, out, err = run("bench", *arguments)
    results = json.loads(out)["results"]
    assert code == 0 and "decode tokens/s" in err
    assert [(row["prompt_tokens"], row["batch"]) for row in results] == [(8, 1), (8, 3), (70, 1), (70, 3)]
    assert all(row["prefill_tokens_per_second"] > 0 and row["decode_tokens_per_second"] > 0 for row in results)
