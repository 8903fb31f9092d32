"""OpenAI's client for Node and the AI SDK against a small server, where node and their packages are."""

import shutil
import subprocess
from pathlib import Path

import pytest

from deepseek_v32.inference.server.service.service import Service
from support.server import MODEL, serving, stand_in_llm

SCRIPT = Path(__file__).parents[3] / "scripts" / "serving" / "node_clients.mjs"


@pytest.mark.heavy
def test_node_clients():
    node = shutil.which("node")
    if node is None or not (SCRIPT.parent / "node_modules").is_dir():
        pytest.skip("needs node, and npm install --prefix scripts/serving, which make test does where npm is")
    with serving(Service(stand_in_llm(max_model_len=4096, page_count=128))) as server:
        command = [node, SCRIPT, f"{server.url}/v1", MODEL]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        lines = result.stdout.splitlines()
        assert result.returncode == 0 and len(lines) >= 17, result.stdout + result.stderr
        assert all(line.startswith("ok ") for line in lines)
        assert server.idle()
