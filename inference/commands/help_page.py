"""What --help prints: options in groups, names that are never cut, and a column of text that stays readable at 80 columns."""

from typing import Any

from typer.core import TyperCommand

NAMES = 28  # columns; a longer name has a line of its own
OWN = "Options"  # the group of options that name none; it comes first


class HelpCommand(TyperCommand):
    """A command whose help has the groups of `rich_help_panel`. Its epilog is a list of examples, printed as it is."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description, arguments, options by group, and examples."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        for title, rows in self._groups(ctx).items():
            with formatter.section(title):
                formatter.write_dl(rows, col_max=NAMES)
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.strip().splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")

    def _groups(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], OWN: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None)
                groups.setdefault("Arguments" if is_argument else panel or OWN, []).append(record)
        return {title: rows for title, rows in groups.items() if rows}
