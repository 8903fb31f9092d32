"""The checkpoint for other engines: the same bytes everywhere, its narrow twin's function, the released model's conventions."""

import hashlib
import json
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from make_conformance_checkpoint import shares, widened, write_demo, write_twin, write_wide
from safetensors import safe_open
from trace_transformers import load as load_theirs
from trace_transformers import trace as trace_theirs

from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.compare import compare
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.trace import Trace
from support.configs import RELEASED

ROOT = Path(__file__).resolve().parents[2]
TOKENS = torch.randint(3, 4096, (80,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wide")
    write_wide(directory)
    return directory


def logprobs(directory: Path, **options) -> torch.Tensor:
    llm = LLM(directory, device="cpu", precision="exact", page_count=8, max_model_len=128, **options)
    return llm.logits(TOKENS).log_softmax(-1)


def digests(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def test_the_same_bytes_each_time_and_none_left_from_before(wide, tmp_path):
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"of another checkpoint")
    write_wide(tmp_path)
    assert digests(tmp_path) == digests(wide)


def test_released_conventions(wide):
    config = json.loads((wide / "config.json").read_text())
    assert config.keys() - {"dtype", "pad_token_id"} <= RELEASED.keys()
    same = (
        "index_topk",
        "index_head_dim",
        "index_n_heads",
        "kv_lora_rank",
        "qk_rope_head_dim",
        "qk_nope_head_dim",
        "v_head_dim",
    )
    assert {name: config[name] for name in same} == {name: RELEASED[name] for name in same}
    assert config["quantization_config"] == RELEASED["quantization_config"]
    assert config["num_attention_heads"] == 64 and config["rms_norm_eps"] == 1e-5
    wrong = [key for key, size in config.items() if key.endswith(("_size", "_rank")) and size % 128]
    assert not wrong
    with safe_open(wide / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118
            if name.endswith("_scale_inv"):
                mantissas, _ = torch.frexp(file.get_tensor(name))
                assert (mantissas == 0.5).all(), f"{name} has scales that are no powers of two"


def test_it_computes_what_its_narrow_twin_does(wide, tmp_path):
    write_twin(tmp_path)
    assert (logprobs(wide) - logprobs(tmp_path)).abs().max() < 1e-3


@pytest.mark.heavy
@pytest.mark.parametrize("length", [80, pytest.param(2200, marks=pytest.mark.slow)])
def test_every_stage_of_it_is_transformers(wide, length):
    """Stages agree in fp32, for a text that fits in index_topk and for a longer one."""
    llm = LLM(wide, device="cpu", precision="exact", page_count=40, max_model_len=2560)
    assert llm.tokenizer is not None
    text = (ROOT / "docs" / "dsa.md").read_text(encoding="utf-8") * 2
    tokens = list(llm.tokenizer.encode_prompt(text))[:length]
    theirs = Trace(trace_theirs(load_theirs(wide), tokens), {"precision": "exact"})
    report = compare(theirs, llm.trace(tokens))
    assert len(tokens) == length and report.equal, report.first


def test_bf16_holds_the_same_numbers(wide, tmp_path):
    write_wide(tmp_path, "bf16")
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    assert torch.equal(logprobs(wide), logprobs(tmp_path))


def test_the_demo_in_bf16_is_the_demo(tmp_path):
    """The bf16 copy, for engines that do not take FP8, computes the same as the demo."""
    write_demo(tmp_path, "bf16")
    assert json.loads((tmp_path / "config.json").read_text())["index_topk"] == 128
    assert torch.equal(logprobs(DEMO), logprobs(tmp_path))


def test_the_residual_streams_epsilon_shows_if_latents_are_normed_with_it(wide):
    with patch("deepseek_v32.model.attention.LATENT_NORM_EPS", 1e-5):
        wrong = logprobs(wide)
    assert (logprobs(wide) - wrong).abs().max() > 0.5


def test_some_index_heads_count_against_a_token(wide):
    """Every second index head of the last layer has the opposite sign, so selections differ from what attention would choose."""
    name = "model.layers.2.self_attn.indexer.weights_proj.weight"
    with safe_open(DEMO / "model.safetensors", "pt") as demo, safe_open(wide / "model.safetensors", "pt") as made:
        before, after = demo.get_tensor(name), made.get_tensor(name)[:16]
    assert torch.equal(after[::2].sign(), before[::2].sign()) and torch.equal(after[1::2].sign(), -before[1::2].sign())


def test_heads_are_copied_with_their_shares():
    """Attention's output and index scores of copied heads, written out for one row."""
    generator = torch.Generator().manual_seed(2)
    heads, index_weights = torch.randn(16 * 128, generator=generator), torch.randn(16, 8, generator=generator)
    scales = torch.rand(2, 16, generator=generator)
    tensors = {
        "self_attn.o_proj.weight": torch.randn(256, 16 * 128, generator=generator),
        "self_attn.o_proj.weight_scale_inv": scales,
        "indexer.weights_proj.weight": index_weights,
    }
    wide = widened(tensors, 8, 4)

    def output(weight, scale, copies):
        blocks = weight.unflatten(1, (-1, 128)) * scale.repeat_interleave(128, 0)[:, :, None]
        return blocks.flatten(1).double() @ heads.double().repeat(copies)

    narrow = output(*list(tensors.values())[:2], 1)
    torch.testing.assert_close(output(*list(wide.values())[:2], 8), narrow)
    scores = torch.randn(16, generator=generator).relu()
    summed = (wide["indexer.weights_proj.weight"].T @ scores.repeat(4)) * 64**-0.5
    torch.testing.assert_close(summed, index_weights.T @ scores * 16**-0.5)
    assert sum(shares(8)) == sum(shares(2)) == 1


def test_the_demo_is_the_source(wide):
    """The FP8 codes are the demo's own, so that nothing was rounded again."""
    name = "model.layers.1.self_attn.q_b_proj.weight"
    with safe_open(DEMO / "model.safetensors", "pt") as demo, safe_open(wide / "model.safetensors", "pt") as made:
        codes = demo.get_tensor(name).view(torch.uint8)
        assert all(torch.equal(each, codes) for each in made.get_tensor(name).view(torch.uint8).split(len(codes)))
