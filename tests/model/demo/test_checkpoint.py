"""The shipped checkpoint: size, layout, and agreement with transformers after dequantisation."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV32Config, DeepseekV32ForCausalLM, PreTrainedTokenizerFast

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.text.messages import v32_pieces
from deepseek_v32.inference.text.tokenizer import Special
from demo_model.dialogues import write

FP32 = ("layernorm.weight", "norm.weight", "k_norm.bias", "e_score_correction_bias", "weight_scale_inv")
BF16 = ("embed_tokens.weight", "lm_head.weight", "mlp.gate.weight", "weights_proj.weight", "eh_proj.weight")


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return load_file(DEMO / "model.safetensors")


def test_fits_in_twenty_four_mebibytes():
    files = [f for f in DEMO.rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    assert sum(f.stat().st_size for f in files) <= 24 * 2**20


def test_every_tensor_has_the_released_layout(tensors):
    for name, tensor in tensors.items():
        if name.endswith(BF16):
            assert tensor.dtype == torch.bfloat16, name
        elif name.endswith(FP32):
            assert tensor.dtype == torch.float32, name
        else:
            assert tensor.dtype == torch.float8_e4m3fn, name
            scale = tensors[f"{name}_scale_inv"]
            assert scale.shape == tuple(-(-n // 128) for n in tensor.shape), name
    scales = torch.cat([t.flatten() for name, t in tensors.items() if name.endswith("_scale_inv")])
    assert torch.equal(scales, torch.exp2(torch.log2(scales).round())), "scales are powers of two"


def test_configuration_keeps_the_released_head_dimensions():
    config = json.loads((DEMO / "config.json").read_text())
    loaded = DeepseekV32Config(**{k: v for k, v in config.items() if k != "quantization_config"})
    assert (loaded.qk_nope_head_dim, loaded.qk_rope_head_dim, loaded.v_head_dim, loaded.kv_lora_rank) == (
        128,
        64,
        128,
        512,
    )
    assert (loaded.num_attention_heads, loaded.index_head_dim) == (16, 128)
    assert loaded.index_n_heads >= 16
    assert loaded.index_topk in (128, 256)
    assert loaded.max_position_embeddings >= 16384
    assert loaded.mlp_layer_types[0] == "dense"
    assert "sparse" in loaded.mlp_layer_types
    assert config["quantization_config"]["scale_fmt"] == "ue8m0"
    assert config["num_nextn_predict_layers"] == 1


@pytest.fixture(scope="module")
def oracle(tensors, tmp_path_factory) -> DeepseekV32ForCausalLM:
    """transformers' model, loaded with from_pretrained from the checkpoint dequantised to fp32."""
    folder: Path = tmp_path_factory.mktemp("dequantised")
    config = json.loads((DEMO / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    exact = {}
    for name, tensor in tensors.items():
        if name.endswith("_scale_inv") or name.startswith(f"model.layers.{config['num_hidden_layers']}."):
            continue  # transformers has no layer that drafts tokens
        tensor = tensor.float()
        if (scale := tensors.get(f"{name}_scale_inv")) is not None:
            rows, columns = tensor.shape
            tensor *= scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
        exact[name] = tensor
    save_file(exact, folder / "model.safetensors", metadata={"format": "pt"})
    model, info = DeepseekV32ForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    return model.eval()


def prompts(llm: LLM, count: int) -> list[list[int]]:
    """Questions of held-out conversations with all turns before them; most are longer than index_topk."""
    found = []
    for seed in range(count):
        conversation = write(seed, length=700 + 200 * (seed % 6), split="test", wording="train", questions=3,
                             thinking=0.0, functions=0.0)  # fmt: skip
        number = max(i for i, turn in enumerate(conversation.turns) if turn.value)
        found.append(llm.chat_token_ids(conversation.messages(until=number)))
    return found


@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.heavy
def test_transformers_gives_the_same_greedy_answers(oracle, count: int):
    llm = LLM(device="cpu", precision="exact", max_model_len=2048)
    asked = prompts(llm, count)
    assert max(map(len, asked)) > 2 * llm.config.index_topk
    ours = llm.generate(asked, SamplingParams(temperature=0.0, max_tokens=40))
    for ids, completion in zip(asked, ours, strict=True):
        answer = list(completion.token_ids)
        with torch.inference_mode():  # the likeliest token after each, which is what they would generate
            theirs = oracle(torch.tensor([ids + answer])).logits[0, len(ids) - 1 : -1].argmax(-1).tolist()
        assert theirs == answer
        assert completion.finish_reason == "length" or answer[-1] in llm.config.eos_token_ids


def test_a_prompt_with_functions_has_the_tokens_that_transformers_reads():
    """The checkpoint has no chat template: messages are encoded as DeepSeek-V3.2's are."""
    llm = LLM(device="cpu", precision="exact", max_model_len=2048)
    assert llm.chat_format == "v3.2"
    tokenizer = PreTrainedTokenizerFast.from_pretrained(DEMO)
    conversation = write(2, length=4000, split="test", functions=1.0)
    number = max(n for n, turn in enumerate(conversation.turns) if n and conversation.turns[n - 1].call)
    messages, tools = conversation.messages(until=number), [f.schema for f in conversation.functions]
    text = "".join(p.text if isinstance(p, Special) else p for p in v32_pieces(messages, False, tools))
    assert "function_calls>" in text and "<function_results>" in text
    assert tokenizer.encode(text, add_special_tokens=False) == llm.chat_token_ids(messages, tools=tools)


@pytest.mark.parametrize("text", ["", "\x00\ud7ff\U0001f600", "什么时候开门?", "a" * 300, "١٢٣ מה", "<｜User｜>"])
def test_any_text_has_tokens_that_read_back(text: str):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(DEMO)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
