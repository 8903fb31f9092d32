"""Well-formed files with wrong tensors are refused before data is read and before the model is allocated."""

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from deepseek_v32.model.checkpoint import load as checkpoint
from deepseek_v32.model.checkpoint.config_json import parse_config, read_config
from deepseek_v32.model.checkpoint.load import load_model
from deepseek_v32.model.errors import CheckpointError, ConfigError
from deepseek_v32.model.weight_map import tensor_specs
from support.configs import RELEASED
from tiny_model.checkpoint import TINY, write_checkpoint

CONFIG = replace(TINY, num_hidden_layers=2, n_routed_experts=4, num_experts_per_tok=2, num_nextn_predict_layers=1)
Tensors = dict[str, torch.Tensor]
Q, NORM, GATE = (f"model.layers.1.{name}.weight" for name in ("self_attn.q_a_proj", "input_layernorm", "mlp.gate"))
EXPERT = "model.layers.1.mlp.experts.3.up_proj.weight"
MTP = "model.layers.2."


def drop(name: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.pop(name)


def put(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: change(tensors[name])})


def add(name: str, tensor: torch.Tensor) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: tensor})


def rename(old: str, new: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({new: tensors.pop(old)})


CASES = {
    "missing weight": (drop(Q), f"'{Q}' is missing; expected BF16 or F32 or F8_E4M3 [128, 256]"),
    "missing norm": (drop(NORM), f"'{NORM}' is missing; expected BF16 or F32 [256]"),
    "missing expert": (drop(EXPERT), f"'{EXPERT}' is missing"),
    "missing head": (drop("lm_head.weight"), "'lm_head.weight' is missing"),
    "missing scale": (drop(Q + "_scale_inv"), f"'{Q}_scale_inv' is missing; expected F32 [1, 2]"),
    "misspelt": (rename(Q, Q + "s"), f"'{Q}' is missing"),
    "surplus": (add("model.extra.weight", torch.zeros(1)), "'model.extra.weight' is surplus: F32 [1]"),
    "surplus layer": (add("model.layers.3.input_layernorm.weight", torch.zeros(256)), "is surplus"),
    "surplus expert": (add(EXPERT.replace("3", "4"), torch.zeros(128, 256)), "is surplus"),
    "bias": (add(Q.replace("weight", "bias"), torch.zeros(128)), "is surplus"),
    "scale of a norm": (
        add(NORM + "_scale_inv", torch.zeros(2, 1)),
        "is surplus: F32 [2, 1]; expected no such tensor next to",
    ),
    "float with a scale": (put(Q, torch.Tensor.bfloat16), f"'{Q}_scale_inv' is surplus"),
    "transposed": (put(Q, lambda x: x.T.contiguous()), f"'{Q}': shape is [256, 128]; expected [128, 256]"),
    "flat": (put(Q, torch.flatten), f"'{Q}': shape is [32768]; expected [128, 256]"),
    "scalar norm": (put(NORM, lambda x: x[0]), f"'{NORM}': shape is []; expected [256]"),
    "misshapen scale": (put(Q + "_scale_inv", lambda x: x[:, :1].contiguous()), f"'{Q}_scale_inv': shape is [1, 1]"),
    "fp16": (put(GATE, torch.Tensor.half), f"'{GATE}': dtype is F16; expected BF16 or F32"),
    "fp8 norm": (put(NORM, lambda x: x.to(torch.float8_e4m3fn)), f"'{NORM}': dtype is F8_E4M3; expected BF16 or F32"),
    "e5m2": (put(Q, lambda x: x.float().to(torch.float8_e5m2)), f"'{Q}': dtype is F8_E5M2"),
    "int8": (put(Q, lambda x: x.float().to(torch.int8)), f"'{Q}': dtype is I8"),
    "double": (put(Q, torch.Tensor.double), f"'{Q}': dtype is F64"),
    "bf16 scale": (put(Q + "_scale_inv", torch.Tensor.bfloat16), f"'{Q}_scale_inv': dtype is BF16; expected F32"),
    # the MTP layer is not loaded, but its tensors are checked
    "unknown in MTP": (add(MTP + "enorm.bias", torch.zeros(256)), f"'{MTP}enorm.bias' is surplus"),
    "misshapen in MTP": (put(MTP + "eh_proj.weight", lambda x: x.T.contiguous()), f"'{MTP}eh_proj.weight': shape is"),
    "dense MTP": (add(MTP + "mlp.up_proj.weight", torch.zeros(512, 256)), "is surplus"),
}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pristine")
    write_checkpoint(directory, CONFIG, "fp8")
    return directory


def copy(pristine: Path, directory: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(pristine / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_bytes((pristine / "config.json").read_bytes())


def refused(directory: Path, error: type[ValueError] = CheckpointError, **arguments: object) -> str:
    with pytest.raises(error) as caught:
        load_model(directory, **arguments)
    text = str(caught.value)
    assert text.isprintable() and len(text) < 600 and str(directory) in text, text
    return text


@pytest.mark.parametrize("change, message", CASES.values(), ids=CASES)
def test_wrong_tensors(tmp_path, pristine, monkeypatch, change, message):
    copy(pristine, tmp_path, change)
    monkeypatch.setattr(checkpoint, "Transformer", None)  # must not be reached
    text = refused(tmp_path)
    assert message in text and "; expected " in text


def test_mtp_layer_is_optional(tmp_path, pristine):
    """A checkpoint without the layer loads for any value of the key: transformers drops the key, others drop the layer."""

    def drop_layer(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.startswith(MTP)]:
            del tensors[name]

    load_model(pristine, "fp8")
    copy(pristine, tmp_path, drop_layer)
    load_model(tmp_path, "fp8")
    copy(pristine, tmp_path, lambda tensors: None)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["num_nextn_predict_layers"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    load_model(tmp_path, "fp8")


WK, WEIGHTS_PROJ, K_BIAS = (
    f"model.layers.1.self_attn.indexer.{name}" for name in ("wk.weight", "weights_proj.weight", "k_norm.bias")
)


@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("name", [WK, WEIGHTS_PROJ, K_BIAS, Q, Q + "_scale_inv", NORM, EXPERT, "lm_head.weight"])
def test_non_finite_values(tmp_path, pristine, name, value):
    """NaN or infinity in any tensor is refused. NaN scores are never selected, so in the indexer it would not reach the logits."""

    def poison(tensor: torch.Tensor) -> torch.Tensor:
        values = tensor.float()
        values.view(-1)[-1] = value if tensor.dtype != torch.float8_e4m3fn else math.copysign(math.nan, value)
        return values.to(tensor.dtype)

    copy(pristine, tmp_path, put(name, poison))
    for precision in ("exact", "fp8"):
        assert f"tensor '{name}' holds NaN or infinity; expected" in refused(tmp_path, precision=precision)


def scaled(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Multiplies one scale."""

    def change(scale: torch.Tensor) -> torch.Tensor:
        scale = scale.clone()
        scale.view(-1)[0] *= factor
        return scale

    return change


@pytest.mark.parametrize("factor", [0.0, -0.0, -1.0])
def test_scales_that_are_not_positive(tmp_path, pristine, factor):
    copy(pristine, tmp_path, put(WK + "_scale_inv", scaled(factor)))
    for precision in ("exact", "fp8"):
        assert f"tensor '{WK}_scale_inv' holds scales of 0 or less" in refused(tmp_path, precision=precision)


def test_scales_that_are_no_powers_of_two(tmp_path, pristine):
    """They are usable as they are, so they are warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_model(pristine)
    copy(pristine, tmp_path, put(WK + "_scale_inv", scaled(1.2)))
    for precision in ("exact", "fp8"):
        with pytest.warns(
            UserWarning, match=f"1 tensors of scales, the first '{WK}_scale_inv', hold values that are no"
        ):
            load_model(tmp_path, precision)
    values = json.loads((tmp_path / "config.json").read_text())
    values["quantization_config"]["scale_fmt"] = "float"
    (tmp_path / "config.json").write_text(json.dumps(values))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_model(tmp_path)


@pytest.mark.parametrize("layers", [0, 1], ids=["no next-token layer", "next-token layer"])
def test_fewer_layers_than_stored(tmp_path, layers):
    """The layer after the last one could be taken for a next-token layer, which is not loaded."""
    write_checkpoint(tmp_path, replace(CONFIG, num_hidden_layers=3, num_nextn_predict_layers=layers), "bf16")
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | {"num_hidden_layers": 2}))
    text = refused(tmp_path)
    assert "num_hidden_layers is 2; expected more, because 'model.layers.2." in text and "eh_proj" in text


def test_file_that_shrinks_while_loading(tmp_path, pristine, monkeypatch):
    copy(pristine, tmp_path, lambda tensors: None)
    allocate = checkpoint.build_model

    def shrink(*arguments: object) -> torch.nn.Module:
        with (tmp_path / "model.safetensors").open("r+b") as file:
            file.truncate(100_000)
        return allocate(*arguments)

    monkeypatch.setattr(checkpoint, "build_model", shrink)
    assert "the length that it had when it was checked" in refused(tmp_path)


def test_config_comes_first(tmp_path, pristine):
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "no such file" in refused(tmp_path, ConfigError)
    with pytest.raises(ConfigError, match="override is 'depth'; expected one of"):
        read_config(pristine).with_overrides(depth=3)
    with pytest.raises(ConfigError, match="precision is 'fp4'"):
        load_model(pristine, "fp4")
    large = read_config(pristine).with_overrides(num_hidden_layers=2**31 - 1)
    assert "is missing" in refused(pristine, config=large)  # and fast


def test_released_model_has_its_known_size():
    """92,425 tensors, 689 GB: the table of tensors is complete for the released model."""
    count = size = 0
    for spec in tensor_specs(parse_config(RELEASED)):
        count += 1 + spec.quantised
        scales = 4 * math.prod(spec.scale_shape) if spec.quantised else 0
        width = 1 if spec.quantised else 4 if "norm" in spec.name or spec.name.endswith("bias") else 2
        size += width * math.prod(spec.shape) + scales
    assert count == 92_425
    assert size == 689_471_107_200  # 642 GiB
