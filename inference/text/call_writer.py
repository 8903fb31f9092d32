"""The arguments of one function call as JSON text, which grows while the call is read."""

import json

from .tool_schema import ToolSchema


class CallWriter:
    """Writes a call's arguments, parameter by parameter. What it has written is never taken back.

    A text is written as it comes. Other values are written once they are complete, because the schema may repair them.
    """

    def __init__(self, name: str, schema: ToolSchema | None) -> None:
        self.name = name
        self._schema = schema or ToolSchema()
        self.has_parameters = False
        self._written: list[str] = []
        self._taken = 0  # pieces of what is written
        self._key = ""
        self._is_string = False
        self._value: list[str] | None = None  # of the parameter that is open, unless it is written as it comes
        # A parameter that may hold all arguments, if it stays the only one.
        self._wrapper: tuple[str, str, bool] | None = None

    @property
    def arguments(self) -> str:
        return "".join(self._written)

    def take(self) -> str:
        """What has been written since the last call."""
        new, self._taken = self._written[self._taken :], len(self._written)
        return "".join(new)

    def open(self, key: str, is_string: bool) -> None:
        """Begin a parameter."""
        self._write_wrapper()
        self.has_parameters = True
        self._key, self._is_string = key, is_string
        if is_string and self._schema.is_text(key) and not self._may_wrap():
            self._write_key(key, '"')
        else:
            self._value = []

    def add(self, text: str) -> None:
        """A part of the open parameter's value."""
        if self._value is not None:
            self._value.append(text)
        elif text:
            self._written.append(json.dumps(text, ensure_ascii=False)[1:-1])

    def close(self) -> None:
        """End the open parameter."""
        if self._value is None:
            self._written.append('"')
            return
        text, self._value = "".join(self._value), None
        if self._may_wrap():
            self._wrapper = (self._key, text, self._is_string)
        else:
            self._write_key(self._key, self._schema.value(self._key, text, self._is_string))

    def end(self, body: str, is_closed: bool) -> bool:
        """End the call; `body` is its text besides parameters. False if the text makes no call.

        A call without parameters may give its arguments as one JSON object, or have none, if it is closed.
        """
        if self._wrapper is not None and (arguments := self._schema.unwrapped(self._wrapper[1])) is not None:
            self._written, self._wrapper = [arguments], None
            return True
        self._write_wrapper()
        if self._written:
            self._written.append("}")
            return True
        whole = self._schema.body(body) if body.strip() else "{}" if is_closed else None
        self._written += [] if whole is None else [whole]
        return whole is not None

    def cut(self) -> None:
        """End the call in the midst of a value: its arguments stay incomplete, so that nobody can take them for whole."""
        self._write_wrapper()
        if self._value is not None:
            text = "".join(self._value)
            self._write_key(self._key, json.dumps(text, ensure_ascii=False)[:-1] if self._is_string else text)
            self._value = None

    def _may_wrap(self) -> bool:
        return not self._written and self._schema.may_wrap(self._key)

    def _write_wrapper(self) -> None:
        if self._wrapper is not None:
            key, text, is_string = self._wrapper
            self._wrapper = None
            self._write_key(key, self._schema.value(key, text, is_string))

    def _write_key(self, key: str, value: str) -> None:
        self._written.append(f"{', ' if self._written else '{'}{json.dumps(key, ensure_ascii=False)}: {value}")
