"""The README's Python examples run, and do what their comments say."""

import ast
import asyncio
import contextlib
import io
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deepseek_v32.inference import LLM
from deepseek_v32.inference.server.service.service import Service
from deepseek_v32.model.demo import NAME as DEMO_NAME
from support.doc_blocks import blocks
from support.server import serving

pytestmark = pytest.mark.heavy  # they load the demo, and answer many times
README = Path(__file__).resolve().parents[2] / "README.md"


def in_a_notebook(code: str, found: dict[str, Any]) -> None:
    """Run a cell: its event loop runs, and `await` stands outside of functions."""

    async def cell() -> None:
        work = eval(compile(code, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), found)
        if work is not None:
            await work

    asyncio.run(cell())


@pytest.mark.parametrize("notebook", [False, True], ids=["program", "notebook"])
def test_the_example_runs(notebook: bool) -> None:
    example, _ = blocks(README, "python")
    call = "await main()" if notebook else "asyncio.run(main())"
    if notebook:
        example, replaced = re.subn(
            r"^asyncio\.run\(main\(\)\)  # in a notebook: (.*)$", r"\1", example, flags=re.MULTILINE
        )
        assert replaced == 1
    found: dict[str, Any] = {}
    out = io.StringIO()
    assert f"\n{call}" in example
    with ThreadPoolExecutor(1) as pool, contextlib.redirect_stdout(out):  # browser tests leave a loop running here
        pool.submit(in_a_notebook if notebook else exec, example, found).result()
    streamed, *_ = lines = out.getvalue().splitlines()
    answer = found["answer"]
    assert "4815" in answer.message.content and streamed.startswith(answer.message.content)
    assert str(answer.selection[0].positions(1)[-1]) in lines[-2]
    assert len(found["answers"]) == 6 and len({each.text for each in found["answers"][:3]}) > 1
    assert found["logits"].shape == (len(answer.token_ids), found["llm"].config.vocab_size)
    assert lines[-1].startswith(f"{answer.message.content} ")
    assert repr(found["llm"]) == "LLM(closed)"


def test_the_clients_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    _, example = blocks(README, "python")
    address = "http://127.0.0.1:8000"
    assert example.count(address) == 1
    with LLM(device="cpu", page_count=32) as llm, serving(Service(llm), model_name=DEMO_NAME) as server:
        exec(compile(example.replace(address, server.url), "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("4815. You said: My code is 4815.")
