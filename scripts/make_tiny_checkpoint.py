"""Write a small random checkpoint in the Hugging Face layout, with a tokenizer, to try everything without a download.

The model is untrained, so its answers are noise. Run `python scripts/make_tiny_checkpoint.py DIRECTORY`.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from deepseek_v32.model.checkpoint.config_json import config_json, parse_config, read_config
from deepseek_v32.model.config import ModelConfig
from deepseek_v32.model.errors import ConfigError

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves it out

from tiny_model.checkpoint import TINY, WeightDtype, write_checkpoint
from tiny_model.tokenizer import SMALLEST_VOCABULARY, write_tokenizer


def main() -> int:
    arguments = parse_arguments()
    try:
        config = choose_config(arguments)
        size = write_checkpoint(arguments.directory, config, arguments.dtype, arguments.seed, arguments.shards)
        tokens = write_tokenizer(arguments.directory, config.vocab_size) if arguments.tokenizer else 0
    except (ValueError, OSError) as error:
        print(f"make_tiny_checkpoint: {error}", file=sys.stderr)
        return 2
    text = f"a tokenizer of {tokens} ids" if tokens else "no tokenizer"
    print(f"{arguments.directory}: {size / 1e6:.1f} MB of random {arguments.dtype} weights, {text}")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="written into; weights already there are replaced")
    parser.add_argument("--dtype", choices=get_args(WeightDtype), default="bf16", help="of the weights (default bf16)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same weights, in every dtype and sharding")
    parser.add_argument("--shards", type=int, help="number of files, with an index (default: one file if it is small)")
    parser.add_argument("--layers", type=int, help="number of layers; short for --set num_hidden_layers=N")
    parser.add_argument("--mtp", action="store_true", help="add the multi-token-prediction layer")
    parser.add_argument("--base", type=Path, help="start from this config.json instead of the built-in tiny one")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of config.json and its value in JSON, e.g. --set index_topk=16; may be repeated",
    )
    parser.add_argument(
        "--no-tokenizer", dest="tokenizer", action="store_false", help="only weights and config.json: ids in, ids out"
    )
    return parser.parse_args()


def choose_config(arguments: argparse.Namespace) -> ModelConfig:
    base = TINY if arguments.base is None else read_config(arguments.base)
    values = config_json(base) | dict(read_setting(setting) for setting in arguments.settings)
    if arguments.layers is not None:
        values["num_hidden_layers"] = arguments.layers
    values["num_key_value_heads"] = None  # repeats num_attention_heads, which may just have been set
    config = parse_config(values)
    if arguments.mtp and not config.num_nextn_predict_layers:
        config = replace(config, num_nextn_predict_layers=1)
    if arguments.tokenizer and config.vocab_size < SMALLEST_VOCABULARY:
        raise ConfigError(
            f"vocab_size is {config.vocab_size}; expected at least {SMALLEST_VOCABULARY} with a tokenizer"
        )
    return config


def read_setting(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"--set is {text!r}; expected KEY=VALUE")
    try:
        return key.strip(), json.loads(value)
    except ValueError:
        return key.strip(), value  # a bare word, such as silu


if __name__ == "__main__":
    sys.exit(main())
