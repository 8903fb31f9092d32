"""The log of a server, and the silence of the library by itself."""

import itertools
import logging
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from deepseek_v32.inference import SamplingParams
from deepseek_v32.inference.server.service import server_log
from deepseek_v32.inference.server.service.server_log import ServerLog, configure_logging
from deepseek_v32.inference.server.service.service import Service
from support.fake_model import RAISE, fake_llm
from support.server import serving, stand_in_llm

PROMPT = list(b"what is question 0?")
GREEDY = SamplingParams(temperature=0, max_tokens=12)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="deepseek_v32")
    return lambda: [record.getMessage() for record in caplog.records if record.name == server_log.__name__]


def test_a_line_for_each_finished_request(lines):
    with Service(fake_llm()) as service:
        service.observe(ServerLog(service))
        list(service.stream(PROMPT, GREEDY))
        list(service.stream([*PROMPT, RAISE], GREEDY))
    whole, failed = lines()
    assert whole.startswith("request 0: length, 19 prompt tokens (0 cached), 12 generated, first token after ")
    assert whole.endswith(" tokens/s")
    assert failed.startswith("request 1: error, 20 prompt tokens (0 cached), 0 generated, all after ")


def test_a_report_counts_prefill_and_decode_since_the_last_one(lines, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(server_log, "time", clock)
    with Service(fake_llm()) as service:
        log = ServerLog(service)
        service.observe(log)
        clock.monotonic = lambda: 10.0
        log.report()
        assert lines() == []  # idle
        list(service.stream(PROMPT, GREEDY))
        list(service.stream(list(range(5)), GREEDY))
        clock.monotonic = lambda: 20.0
        log.report()
        clock.monotonic = lambda: 30.0
        log.report()  # idle again
    [report] = lines()[2:]
    # 19 + 5 prompt tokens and 24 generated ones in 10 seconds.
    assert report == ("running 0, waiting 0; 2.4 tokens/s in, 2.4 tokens/s out; pages: 0 used, 64 free, 0 cached")


@pytest.mark.heavy
def test_a_server_reports_while_it_is_busy_and_is_quiet_when_idle(lines, monkeypatch):
    monkeypatch.setattr(server_log, "REPORT_SECONDS", 0.02)
    reports = []
    report = ServerLog.report
    monkeypatch.setattr(ServerLog, "report", lambda self: reports.append(report(self)))

    def wait_for_reports(count):
        end = len(reports) + count
        while len(reports) < end:
            time.sleep(0.005)

    llm = stand_in_llm(max_sequences=1)
    gate = threading.Event()
    steps = itertools.count()
    # Let the first step run: a report shows the engine's state after a step.
    llm.model.before_step = lambda: next(steps) and gate.wait(60)
    with serving(Service(llm)) as server:
        assert lines() == []
        streams = [server.service.stream([1, 2], GREEDY) for _ in range(2)]
        while not any(line.startswith("running 1, waiting 1; ") for line in lines()):
            time.sleep(0.01)
        assert next(steps) == 2  # the second step waits: only reports have shown that state
        gate.set()
        assert [list(stream)[-1].finish_reason for stream in streams] == ["length"] * 2
        wait_for_reports(2)  # including the last report about these two
        before = lines()
        wait_for_reports(4)
        assert lines() == before
    assert len([line for line in before if line.startswith("request ")]) == 2


def test_levels(monkeypatch):
    root, package = logging.Logger("root"), logging.getLogger("deepseek_v32")
    monkeypatch.setattr(logging, "root", root)
    monkeypatch.setattr(package, "level", package.level)
    monkeypatch.setattr(logging.getLogger("uvicorn"), "level", 0)
    for level in ("debug", "info", "warning", "error"):
        configure_logging(level)
        assert package.level == getattr(logging, level.upper())
    assert len(root.handlers) == 1 and root.level == logging.WARNING


@pytest.mark.heavy
def test_the_library_installs_no_handler_and_says_nothing():
    program = """
import logging
import deepseek_v32.inference
from deepseek_v32.inference.server.service import server_log, service
assert logging.getLogger().handlers == []
[handler] = logging.getLogger("deepseek_v32").handlers
assert isinstance(handler, logging.NullHandler)
logging.getLogger("deepseek_v32.inference.engine.engine").error("a step failed")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
