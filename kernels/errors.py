"""The error that every layer raises for an argument that cannot be used."""

from typing import Any, Self


class ArgumentError(ValueError):
    """An argument that cannot be used. Its text is one line: `<name> is <value>; expected <what>`.

    Code that tells users which of their own words is wrong takes `name`, never the text.
    """

    def __init__(self, name: str, value: object, expected: str | None, verb: str = "is") -> None:
        """value: as users read it, such as its repr. verb: "has", "holds" …, where the value is a property of the argument."""
        super().__init__(f"{name} {verb} {value}{'' if expected is None else f'; expected {expected}'}")
        self.name, self.value, self.expected, self.verb = name, value, expected, verb

    def renamed(self, name: str) -> Self:
        """The same error about an argument that users know by another name."""
        return type(self)(name, self.value, self.expected, self.verb)


def check_flags(**flags: Any) -> None:
    """Raise ArgumentError for a flag that is no boolean."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ArgumentError(name, f"{value!r:.100}", "True or False")
