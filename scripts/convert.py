"""Convert a Hugging Face checkpoint for several ranks, with the flags of DeepSeek's convert.py; `deepseek-v32 convert` is the same.

python scripts/convert.py --hf-ckpt-path DIRECTORY --save-path DIRECTORY --n-experts 256 --model-parallel 8
"""

import typer

from deepseek_v32.inference.commands.cli import run
from deepseek_v32.inference.commands.convert import convert

if __name__ == "__main__":
    program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    program.command()(convert)
    run(program)
