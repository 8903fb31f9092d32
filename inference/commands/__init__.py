"""The command line: one module for each command of `deepseek-v32`, and the modules that several commands use."""

import sys


def main() -> None:
    """Run the `deepseek-v32` command. Ctrl-C ends it silently with status 130, also while its modules are imported."""
    try:
        from . import cli

        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)
