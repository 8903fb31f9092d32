"""`python -m deepseek_v32.inference.generate`: the command `deepseek-v32 generate`, with the flags of DeepSeek's generate.py."""

import typer

from .commands.cli import HelpCommand, run
from .commands.generate import generate

if __name__ == "__main__":
    program = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    program.command(cls=HelpCommand)(generate)
    run(program)
