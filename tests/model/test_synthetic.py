"""Tiny checkpoints: transformers reads them, activations and selections are not degenerate, and the script writes them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepseek_v32.model.checkpoint.config_json import config_json, read_config
from support.forked_ranks import run_program
from support.job import Ended
from tiny_model.checkpoint import TINY, write_checkpoint
from tiny_model.tokenizer import MARKUP, SMALLEST_VOCABULARY, make_texts, write_tokenizer

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_tiny_checkpoint.py"


def test_same_seed_same_weights(tmp_path):
    for name, dtype, shards, seed in (("a", "fp32", None, 3), ("b", "bf16", 4, 3), ("c", "fp32", None, 4)):
        write_checkpoint(tmp_path / name, TINY, dtype, seed, shards)
    a = load_file(tmp_path / "a" / "model.safetensors")
    c = load_file(tmp_path / "c" / "model.safetensors")
    b = {name: x for file in (tmp_path / "b").glob("*.safetensors") for name, x in load_file(file).items()}
    assert a.keys() == b.keys() == c.keys()
    for name, tensor in b.items():
        assert torch.equal(a[name].to(tensor.dtype), tensor)
        assert not torch.equal(a[name], c[name])


def test_rewriting_leaves_nothing_stale(tmp_path):
    write_checkpoint(tmp_path, TINY, shards=5)
    write_checkpoint(tmp_path, TINY)
    assert [path.name for path in tmp_path.glob("model*")] == ["model.safetensors"]
    write_checkpoint(tmp_path, TINY, shards=2)
    assert len(list(tmp_path.glob("model*"))) == 3
    assert (tmp_path / "model-00001-of-00002.safetensors").stat().st_mode & 0o044  # readable by others


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="dtype is 'fp16'; expected one of bf16, fp32, fp8"):
        write_checkpoint(tmp_path, TINY, "fp16")
    with pytest.raises(ValueError, match="shards is 0"):
        write_checkpoint(tmp_path, TINY, shards=0)
    with pytest.raises(ValueError, match=f"vocab_size is 100; expected at least {SMALLEST_VOCABULARY}"):
        write_tokenizer(tmp_path, 100)
    assert not list(tmp_path.iterdir())


def test_transformers_reads_it_and_nothing_degenerates(tmp_path):
    """Hidden states stay O(1) through the layers, selections and routing vary, and tokens get different logits."""
    from transformers import DeepseekV32ForCausalLM

    write_checkpoint(tmp_path, TINY, "fp32")
    model, report = DeepseekV32ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokens = torch.randint(3, TINY.vocab_size, (1, 200), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        output = model(tokens, output_hidden_states=True, output_router_logits=True)
    for hidden in output.hidden_states:
        assert 0.3 < hidden.std() < 3
    assert 0.3 < output.logits.std() < 3
    choices = output.logits[0].argmax(-1)
    assert choices.unique().numel() > 20  # no token always wins
    bias = model.model.layers[1].mlp.gate.e_score_correction_bias
    scores = output.router_logits[0].sigmoid().reshape(-1, TINY.n_routed_experts)
    chosen, unbiased = ((scores + b).topk(4).indices.sort().values for b in (bias, 0))
    assert chosen.flatten().bincount(minlength=16).max() < 0.9 * len(scores)
    assert (chosen != unbiased).any(1).float().mean() > 0.1  # the bias changes some choices


def test_tokenizer(tmp_path):
    from transformers import AutoTokenizer

    assert write_tokenizer(tmp_path, 1024) == 1024
    assert SMALLEST_VOCABULARY <= write_tokenizer(tmp_path / "large", 129280) < 129280  # the texts yield no more merges
    assert write_tokenizer(tmp_path / "small", SMALLEST_VOCABULARY) == SMALLEST_VOCABULARY
    (tmp_path / "config.json").write_text(json.dumps(config_json(TINY)))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 1, 2)
    assert [tokenizer.convert_tokens_to_ids(token) for token in MARKUP] == [*range(1024 - len(MARKUP), 1024)]
    for text in (*list(make_texts(1, 50)), "naïve 🙂 مرحبا\t\x00 12345 <think>x</think>"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text
        assert len(ids) < len(text.encode())


def test_chat_template(tmp_path):
    from transformers import AutoTokenizer

    write_tokenizer(tmp_path, 512)
    (tmp_path / "config.json").write_text(json.dumps(config_json(TINY)))
    render = AutoTokenizer.from_pretrained(tmp_path).apply_chat_template
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>hm</think>Hello"},
        {"role": "user", "content": "Why?"},
    ]
    start = "<｜begin▁of▁sentence｜>Be kind.<｜User｜>Hi<｜Assistant｜></think>Hello<｜end▁of▁sentence｜><｜User｜>Why?"
    asked = dict(tokenize=False, add_generation_prompt=True)
    assert render(messages, **asked) == start + "<｜Assistant｜></think>"
    assert render(messages, **asked, thinking=True) == start + "<｜Assistant｜><think>"
    assert render(messages, tokenize=False) == start


def run_script(*arguments: object) -> Ended:
    return run_program("import runpy, sys\nrunpy.run_path(sys.argv.pop(1), run_name='__main__')", SCRIPT, *arguments)


@pytest.mark.heavy
def test_script(tmp_path):
    options = ["--dtype", "fp8", "--mtp", "--shards", "2", "--layers", "2", "--set", "index_topk=16", "--seed", "7"]
    done = subprocess.run([sys.executable, SCRIPT, tmp_path, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "random fp8 weights, a tokenizer of 1024 ids" in done.stdout
    config = read_config(tmp_path)
    blocks = (128, 128)
    assert config == replace(TINY, num_hidden_layers=2, index_topk=16, num_nextn_predict_layers=1, weight_block=blocks)
    files = {path.name for path in tmp_path.iterdir()}
    assert files >= {
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "model.safetensors.index.json",
    }

    options = ["--base", tmp_path / "config.json", "--no-tokenizer", "--set", "num_attention_heads=2"]
    again = run_script(tmp_path / "b", *options)
    assert again.code == 0, again.err
    assert read_config(tmp_path / "b") == replace(config, num_attention_heads=2, weight_block=None)
    assert not (tmp_path / "b" / "tokenizer.json").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--set", "n_group=5"], "n_group is 5; expected a divisor"),
        (["--set", "depth=5"], "depth is 5; expected no such key"),
        (["--set", "index_topk"], "expected KEY=VALUE"),
        (["--set", "vocab_size=64"], "vocab_size is 64; expected at least 264"),
        (["--base", "nowhere.json"], "no such file"),
    ],
)
@pytest.mark.heavy
def test_script_refuses(tmp_path, arguments, message):
    done = run_script(tmp_path / "out", *arguments)
    assert done.code == 2
    assert message in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
