"""`deepseek-v32 batch`: files of requests, and runs that are cut short."""

import errno
import json
import os
import sys

import pytest
from typer.testing import CliRunner

from deepseek_v32.inference.commands import files, loading
from deepseek_v32.inference.commands.batch import open_answers, read_requests
from deepseek_v32.inference.commands.cli import app
from deepseek_v32.inference.text.errors import describe_error
from support.server import stand_in_llm

MESSAGES = [{"role": "user", "content": "Hi\N{LINE SEPARATOR}there"}]


def request(custom_id, url="/v1/completions", **body):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


REQUESTS = [
    request("chat", "/v1/chat/completions", messages=MESSAGES, max_tokens=3, seed=1),
    request("text", prompt="The", max_tokens=3, seed=1, n=2),
    request("bad", prompt="The", max_tokens="three"),
    request("long", prompt=[1] * 5000),
    request("stream", prompt="The", stream=True),
    {"custom_id": "no body", "url": "/v1/completions"},
    request("many", prompt=["The"] * 20, n=10, max_tokens=1),
    *(request(f"more {i}", prompt=[i + 5], max_tokens=2, seed=i) for i in range(20)),
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command over a file of requests; returns (exit code, what it said, records by custom_id)."""
    asked = []

    def load(*_, **__):
        asked.append(stand_in_llm(max_sequences=4))
        return asked[-1]

    monkeypatch.setattr(loading, "load_llm", load)

    def go(requests, keep=None):
        source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        source.write_text("\n".join(json.dumps(item, ensure_ascii=False) for item in requests), encoding="utf-8")
        if keep is not None:
            target.write_bytes(keep(target.read_bytes()))
        result = CliRunner().invoke(app, ["batch", str(source), str(target)])
        records = [json.loads(line) for line in target.read_text().split("\n") if line] if target.exists() else []
        assert len(records) == len({record["custom_id"] for record in records})
        return result, {record["custom_id"]: record for record in records}

    go.asked = asked
    return go


def test_every_request_gets_its_record(run):
    result, records = run(REQUESTS)
    assert result.exit_code == 1 and "4 requests failed" in result.stderr
    assert set(records) == {item["custom_id"] for item in REQUESTS}
    status = {custom_id: record["response"]["status_code"] for custom_id, record in records.items()}
    assert {custom_id for custom_id, code in status.items() if code != 200} == {"bad", "long", "stream", "no body"}
    assert records["chat"]["response"]["body"]["object"] == "chat.completion" and records["chat"]["error"] is None
    assert len(records["text"]["response"]["body"]["choices"]) == 2
    assert len(records["many"]["response"]["body"]["choices"]) == 200
    assert records["bad"]["response"]["body"]["error"]["param"] == "max_tokens"
    assert records["text"]["id"].startswith("batch_req_")


def test_a_run_whose_device_is_lost_fails_the_rest_and_ends(run, monkeypatch):
    """A lost device fails all remaining requests: the service refuses them, so retries would never end."""

    def lose(*_, **__):
        raise RuntimeError("the device is lost")

    monkeypatch.setattr("deepseek_v32.inference.engine.running.runner.Runner.run", lose)
    monkeypatch.setattr("deepseek_v32.inference.server.service.engine_thread.device_fault", lambda _: "it is lost")
    result, records = run([request(str(i), prompt="The", max_tokens=2) for i in range(16)])
    assert result.exit_code == 1 and "16 requests failed" in result.stderr
    # Of four open at a time, at most eight are with the engine before it has given up: 500, the others are refused.
    statuses = {record["response"]["status_code"] for record in records.values()}
    assert statuses == {500, 503}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_and_a_closed_pipe_end_it_as_they_end_other_commands(tmp_path, monkeypatch):
    llm = stand_in_llm(max_sequences=4)
    monkeypatch.setattr(loading, "load_llm", lambda *_, **__: llm)
    source, pipe = tmp_path / "in.jsonl", tmp_path / "pipe"
    source.write_text("".join(json.dumps(request(str(i), prompt="The", max_tokens=9)) + "\n" for i in range(9)))
    error = CliRunner().invoke(app, ["batch", str(source), "/dev/full"]).exception
    assert describe_error(error) == "/dev/full: No space left on device" and not llm.engine.has_work

    def leave(file, data):
        raise OSError(errno.EPIPE, "Broken pipe")

    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setattr(files.os, "write", leave)
    ended = CliRunner().invoke(app, ["batch", str(source), str(pipe)]).exception
    os.close(reader)
    assert isinstance(ended, SystemExit) and isinstance(ended.__context__, BrokenPipeError)


def test_a_run_that_was_cut_short_goes_on(run):
    _, whole = run(REQUESTS)
    half = len(json.dumps(whole["chat"])) // 2
    result, records = run(REQUESTS, keep=lambda content: content[: content.index(b"\n", len(content) // 2) + 1 + half])
    assert "27 requests to answer" in result.stderr and not result.stderr.startswith("27 of")
    texts = [
        {custom_id: record["response"]["body"].get("choices") for custom_id, record in run.items()}
        for run in (whole, records)
    ]
    assert texts[0] == texts[1]
    result, again = run(REQUESTS)
    answers = {custom_id: record for custom_id, record in records.items() if record["response"]["status_code"] == 200}
    assert "4 of 27" in result.stderr and answers.items() <= again.items()  # what failed is asked again, nothing else
    result, again = run([item for item in REQUESTS if item["custom_id"] in answers])
    assert again == answers and "0 of 23" in result.stderr and result.exit_code == 0 and len(run.asked) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "custom_id"),
        ('{"custom_id": 5}', "custom_id"),
        ('{"custom_id": "a", "url": "/v1/embeddings"}', "/v1/completions"),
        ('{"custom_id": "a", "url": "/v1/completions", "method": "GET"}', "POST"),
        ('{"custom_id": "x", "url": "/v1/completions"}', "earlier line"),
    ],
)
def test_lines_that_are_no_requests(tmp_path, line, message):
    path = tmp_path / "in.jsonl"
    path.write_text('{"custom_id": "x", "url": "/v1/completions"}\n\n' + line)
    with pytest.raises(ValueError, match=message) as error:
        read_requests(path)
    assert ":3:" in str(error.value)


def test_files_that_are_something_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ValueError, match="no requests"):
        read_requests(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="file is not UTF-8"):
        read_requests(path)
    path.write_text("a letter\n")
    with pytest.raises(ValueError, match="another output file"):
        open_answers(path)
    assert path.read_text() == "a letter\n"
    path.write_text("a letter without a line break")
    with pytest.raises(ValueError, match="last line"):
        open_answers(path)
    assert path.read_text() == "a letter without a line break"


@pytest.mark.parametrize(
    "line",
    [
        '{"url": "/", "response": {"status_code": 404}}',
        '{"custom_id": null, "response": {"status_code": 200}}',
        '{"custom_id": ["a"], "response": {"status_code": 200}}',
    ],
    ids=["no id", "null", "list"],
)
def test_a_log_of_another_program_is_left_alone(tmp_path, line):
    """Failed lines are removed and an empty file is deleted, but only if this command has written them."""
    path = tmp_path / "http.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match="line 1"):
        open_answers(path)
    assert path.read_text() == line + "\n"


def test_two_runs_do_not_share_an_output_file(run, tmp_path):
    result, _ = run(REQUESTS[:3])
    assert result.exit_code == 1  # so the next one rewrites the file, to ask what failed again
    held = open_answers(tmp_path / "out.jsonl")
    before = (tmp_path / "out.jsonl").read_bytes()
    second, _ = run(REQUESTS)
    assert isinstance(second.exception, ValueError) and "another run" in str(second.exception) and len(run.asked) == 1
    assert (tmp_path / "out.jsonl").read_bytes() == before
    held.close()
    assert set(run(REQUESTS)[1]) == {item["custom_id"] for item in REQUESTS}


def test_a_run_that_opened_the_file_before_another_replaced_it_leaves_it_alone(tmp_path, monkeypatch):
    path = tmp_path / "out.jsonl"
    path.write_text("")
    real = files.lock

    def lock(file, name):
        if name == path:
            (tmp_path / "new").write_text("")
            (tmp_path / "new").replace(path)  # what another run does when it asks failed requests again
        real(file, name)

    monkeypatch.setattr(files, "lock", lock)
    with pytest.raises(ValueError, match="another run"):
        open_answers(path)
