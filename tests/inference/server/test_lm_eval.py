"""lm_eval's local-completions, run as a command, on tasks defined here. Nothing is downloaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from deepseek_v32.inference import LLM
from deepseek_v32.inference.server.service.service import Service
from support.server import MODEL, serving, stand_in_llm
from support.tiny import tiny_checkpoint

pytestmark = pytest.mark.heavy
COMMAND = Path(sys.executable).with_name("lm_eval")
FACTS = [
    {"question": "The capital of France is", "choices": [" Paris", " Rome", " a very long river"], "answer": 0},
    {"question": "Two and two is", "choices": [" four", " five", " 多"], "answer": 0},
    {"question": "Das Wetter ist", "choices": [" schön", " naïve"], "answer": 1},
]
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
target_delimiter: ""
"""
CHOICE = 'doc_to_choice: "{{choices}}"\ndoc_to_target: "{{answer}}"\nmetric_list: [{metric: acc}]\n'
UNTIL = 'doc_to_target: "x"\ngeneration_kwargs: {until: ["."], max_gen_toks: 6}\nmetric_list: [{metric: exact_match}]\n'


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """(samples by task, the LLM to compare with)."""
    folder = tmp_path_factory.mktemp("lm_eval")
    model = tiny_checkpoint(folder)
    data = folder / "facts.jsonl"
    data.write_text("\n".join(map(json.dumps, FACTS)))
    tasks = folder / "tasks"
    tasks.mkdir()
    for name, kind, rest in (("facts", "multiple_choice", CHOICE), ("writing", "generate_until", UNTIL)):
        (tasks / f"{name}.yaml").write_text(TASK.format(name=name, kind=kind, data=data) + rest)
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "OMP_NUM_THREADS": "1"}
    with serving(Service(LLM(model, device="cpu", max_model_len=512))) as server:
        arguments = {
            "model": MODEL,
            "base_url": f"{server.url}/v1/completions",
            "tokenizer": model,
            "num_concurrent": 4,
        }
        arguments |= {"tokenizer_backend": "huggingface", "max_length": 512}
        subprocess.run(
            [COMMAND, "--model", "local-completions", "--include_path", tasks, "--tasks", "facts,writing",
             "--model_args", ",".join(f"{name}={value}" for name, value in arguments.items()),
             "--output_path", folder / "out", "--log_samples"],
            env={**os.environ, **offline}, check=True, timeout=300, capture_output=True,
        )  # fmt: skip
        assert server.idle()
    samples = {
        name: sorted(
            (json.loads(line) for line in next((folder / "out").rglob(f"samples_{name}_*")).open(encoding="utf-8")),
            key=lambda sample: sample["doc_id"],
        )
        for name in ("facts", "writing")
    }
    return samples, LLM(model, device="cpu", max_model_len=512)


def test_likelihoods_are_the_models(results):
    samples, llm = results
    for fact, sample in zip(FACTS, samples["facts"], strict=True):
        for choice, (response,) in zip(fact["choices"], sample["resps"], strict=True):
            context = llm.tokenizer.encode(fact["question"])
            tokens = llm.tokenizer.encode(fact["question"] + choice)
            logprobs = llm.logits(tokens).log_softmax(-1)
            expected = sum(float(logprobs[i - 1, tokens[i]]) for i in range(len(context), len(tokens)))
            greedy = all(int(logprobs[i - 1].argmax()) == tokens[i] for i in range(len(context), len(tokens)))
            assert float(response[0]) == pytest.approx(expected, abs=1e-3)
            assert response[1] in (greedy, str(greedy))


def test_generation(results):
    samples, _ = results
    assert len(samples["writing"]) == 3 and all("." not in sample["resps"][0][0] for sample in samples["writing"])


def test_the_servers_tokenizer():
    """As lm_eval uses it with tokenizer_backend=remote. A wrong end token would change likelihoods without a word."""
    from lm_eval.utils import RemoteTokenizer, check_remote_tokenizer_support

    with serving(Service(stand_in_llm())) as server:
        tokenizer = server.llm.tokenizer
        assert check_remote_tokenizer_support(f"{server.url}/v1/completions")
        remote = RemoteTokenizer(f"{server.url}/v1/completions")
        assert (remote.bos_token_id, remote.eos_token_id) == (tokenizer.bos_id, tokenizer.eos_ids[0])
        for text in ("naïve 稀疏", f"an end {remote.eos_token} in a text"):
            assert remote.encode(text) == tokenizer.encode(text) and remote.decode(remote.encode(text)) == text
        assert httpx.get(f"{server.url}/v1/models/").json() == httpx.get(f"{server.url}/v1/models").json()
