"""The README's Python example runs, and does what its comments say."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.heavy  # it loads the demo and answers thirteen times
README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    [example] = [block for block in blocks if "import LLM" in block]
    found: dict[str, Any] = {}
    code = compile(example.replace("asyncio.run(main())", "both = asyncio.run(main())"), "README.md", "exec")
    with ThreadPoolExecutor(1) as pool:  # the browser tests leave an event loop running in this thread
        pool.submit(exec, code, found).result()
    streamed, *_ = out = capsys.readouterr().out.splitlines()
    answer = found["answer"]
    assert "4815" in answer.message.content and streamed.startswith(answer.message.content)
    assert str(answer.selection[0].positions(1)[-1]) in out[-1]
    assert len(found["answers"]) == 6 and len({each.text for each in found["answers"][:3]}) > 1
    assert found["logits"].shape == (len(answer.token_ids), found["llm"].config.vocab_size)
    chat, [completion] = found["both"]
    assert chat.message == answer.message and completion.text
    assert repr(found["llm"]) == "LLM(closed)"
