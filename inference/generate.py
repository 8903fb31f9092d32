"""`python -m deepseek_v32.inference.generate`: the command `deepseek-v32 generate`, with the flags of DeepSeek's generate.py."""

import typer

from .cli import run
from .commands.generate import generate

if __name__ == "__main__":
    program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    program.command()(generate)
    run(program)
