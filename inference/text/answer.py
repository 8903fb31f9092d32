"""The model's output, parsed into reasoning, content and function calls while it streams."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .detokenizer import MOST_UNFINISHED, StopStrings
from .dsml import ToolCall
from .tokenizer import DSML, END_THINK, EOS, REPLACEMENT, THINK
from .tool_arguments import CallWriter, is_object, tool_schemas


@dataclass(frozen=True)
class CallDelta:
    """The text that one push added to the arguments of a call."""

    index: int  # of the call in the answer
    name: str | None  # of the function, with the first piece
    arguments: str


@dataclass(frozen=True)
class AnswerDelta:
    """The parts that one push added to an answer. All deltas, joined in order, make the ``AssistantMessage``."""

    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()  # that this piece has completed
    call_deltas: tuple[CallDelta, ...] = ()  # the same calls and unfinished ones, as they grow

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning_content or self.tool_calls or self.call_deltas)

    def __add__(self, other: "AnswerDelta") -> "AnswerDelta":
        deltas = self.call_deltas
        for delta in other.call_deltas:
            if deltas and deltas[-1].index == delta.index:
                last = deltas[-1]
                deltas = (*deltas[:-1], CallDelta(last.index, last.name, last.arguments + delta.arguments))
            else:
                deltas = (*deltas, delta)
        return AnswerDelta(
            self.content + other.content,
            self.reasoning_content + other.reasoning_content,
            self.tool_calls + other.tool_calls,
            deltas,
        )


_OPEN, _CLOSE = f"<{DSML}", f"</{DSML}"  # the beginnings of every mark
# Up to two line breaks before a mark belong to the format. Models sometimes leave them out.
_MARKS = tuple(space + mark for space in ("\n\n", "\n", "") for mark in (_OPEN, _CLOSE))
# A value's own line break may stand before the end of its parameter; before another mark it belongs to the format.
_VALUE_MARKS = tuple(space + mark for space in ("\n", "") for mark in (_OPEN, _CLOSE))
_BLOCKS = ("function_calls", "tool_calls")  # the second is V4's name, which models mix up
# The rest of a mark. Quoted values may hold any character. Without backtracking, which would take quadratic time for a long word.
_MARK_REST = re.compile(r'(?P<word>\w*+)(?P<attributes>(?:"[^"]*"|[^"<>])*+)>')
_NO_MARK = re.compile(r'\w*+(?:"[^"]*"|[^"<>])*+<')
_MOST_SPACE = 64  # characters before a repeated <think>
_LONGEST_MARK = 1024  # characters; longer text is not a mark
_ATTRIBUTE = re.compile(r"""(\w+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/>]+))""")


class AnswerParser:
    """Parses an answer while it streams; the result does not depend on how the text is divided into pushes.

    No mark of DSML is ever returned: text that may become one is held back until that is decided. Arguments are returned as they
    come. Broken formats are recovered where the meaning is plain: calls without a block around them, in unclosed reasoning, not
    closed themselves, with a JSON object as their body, or with values that are not closed or of another type than the schema's.
    Text that makes no call is content, without the marks; text inside of a call follows it. White space between the marks of
    calls, and after the last one, belongs to the format.

    An answer that is cut gives the parts that were certain by then, and they begin the parts of every answer that goes on.
    """

    def __init__(self, thinking: bool, tools: Sequence[Mapping[str, Any]] | None = None):
        """``thinking``: the prompt ends in ``<think>``, so that the answer starts inside the reasoning. ``tools``: functions
        that the answer may call, in OpenAI's shape, whose schemas repair the types of arguments."""
        self._schemas = tool_schemas(tools)
        self._reasons = thinking
        # Reads text in the present state, and returns the rest of it if the state has changed.
        self._read: Callable[[str], str] = self._read_opening if thinking else self._read_text
        self._scanner = _text_scanner(thinking)
        self._unfinished = ""  # U+FFFD at the end of the text, which a cut may have made of a character's first bytes
        self._held = ""  # text on which the present state has not decided yet
        self._begun = ""  # the beginning of the mark that is being read
        # Marks inside a value, and the text after them: the value's if the parameter closes before another one begins.
        self._doubtful = ""
        self._call: CallWriter | None = None
        self._is_named = False  # whether a delta has named the call
        self._body = ""  # text inside of a call and outside of its parameters
        self._stray: list[str] = []  # such text before the latest parameter
        self._gap = ""  # white space around marks
        self._after_mark = self._after_call = False  # since the latest text
        self._calls = 0
        self._parts: list[AnswerDelta] = []

    def push(self, text: str) -> AnswerDelta:
        """Add text; return the part of the answer that is now certain."""
        return sum(self.push_parts(text), AnswerDelta())

    def push_parts(self, text: str) -> list[AnswerDelta]:
        """Do as `push`, but return the reasoning, content and growth of each call one by one, in the order of the text."""
        text = self._unfinished + text
        certain = max(len(text.rstrip(REPLACEMENT)), len(text) - MOST_UNFINISHED)
        self._unfinished = text[certain:]
        self._feed(text[:certain])
        self._take_arguments()
        parts, self._parts = self._parts, []
        return parts

    def finish(self, is_cut: bool = False) -> AnswerDelta:
        """End the answer; return the part that was held back.

        is_cut: something other than the model has ended it, such as max_tokens. Then what was held back is dropped, because it
        may be the beginning of a mark or of a character, and a call that has not ended keeps incomplete arguments.
        """
        return sum(self.finish_parts(is_cut), AnswerDelta())

    def finish_parts(self, is_cut: bool = False) -> list[AnswerDelta]:
        """Do as `finish`, in parts as of `push_parts`."""
        if is_cut:
            self._stray = []
        else:
            self._settle()
        if self._call is not None:
            # A value that the model has not closed is cut in any case.
            self._end_call(is_closed=False, is_cut=is_cut or self._read in (self._read_value, self._read_value_mark))
        if not is_cut and self._after_mark and not self._after_call:
            self._emit(self._gap)
        self._gap = self._held = ""
        parts, self._parts = self._parts, []
        return parts

    def _settle(self) -> None:
        """Decide on the text that is held back in an answer that the model has ended."""
        self._feed(self._unfinished)
        if self._read == self._read_opening:
            self._add(self._held)
        if self._doubtful:
            doubtful = self._doubtful
            self._end_value()
            self._feed(doubtful)
        if self._read == self._read_mark:
            # A cut mark is dropped. With line breaks it is more likely a quoted text without its end.
            text = self._held if "\n" in self._held else ""
            self._to_text_or_body()
            self._feed(text)
        if self._read == self._read_text:
            self._add(self._scanner.finish())

    def _feed(self, text: str) -> None:
        while text:
            text = self._read(text)

    def _read_opening(self, text: str) -> str:
        """Read the beginning of the reasoning. An answer may repeat the <think> that ends the prompt."""
        self._held += text
        begun = self._held.lstrip()
        may_begin = len(self._held) - len(begun) <= _MOST_SPACE
        if may_begin and THINK.startswith(begun) and begun != THINK:
            return ""
        rest = begun.removeprefix(THINK) if may_begin and begun.startswith(THINK) else self._held
        self._read, self._held = self._read_text, ""
        return rest

    def _read_text(self, text: str) -> str:
        """Read reasoning or content."""
        safe, found = self._scanner.push(text)
        self._add(safe)
        if found is None:
            return ""
        rest = self._scanner.rest
        if found == END_THINK:
            if not self._after_call:
                self._emit(self._gap)
            self._gap, self._after_mark = "", False
            self._reasons, self._scanner = False, _text_scanner(False)
        else:
            self._begin_mark(found)
        return rest

    def _read_body(self, text: str) -> str:
        """Read the inside of a call, outside its parameters."""
        safe, found = self._scanner.push(text)
        self._body += safe
        if found is None:
            return ""
        rest = self._scanner.rest
        self._begin_mark(found)
        return rest

    def _read_value(self, text: str) -> str:
        """Read the value of a parameter."""
        safe, found = self._scanner.push(text)
        self._add_value(safe)
        if found is not None:
            self._read, self._begun = self._read_value_mark, found
        return self._scanner.rest

    def _read_value_mark(self, text: str) -> str:
        """Read the rest of a mark inside a value.

        A parameter's end ends the value; so does another parameter's beginning, if the model has left out the end.
        """
        assert self._call is not None
        if (read := self._match_mark(text)) is None:
            return ""
        (held, mark), begun = read, self._begun
        self._read, self._scanner = self._read_value, StopStrings(_VALUE_MARKS)
        if mark is None:
            self._add_value(begun)
            return held
        word, rest, is_closing = mark["word"], held[mark.end() :], begun.endswith(_CLOSE)
        if word == "parameter" and is_closing:
            self._call.add(self._doubtful + begun.removesuffix(_CLOSE))
            self._end_value()
        elif word == "parameter" and "name" in _attributes(mark):
            rest = self._doubtful + begun + held
            self._end_value()
        elif word == "invoke" or word in _BLOCKS:
            self._doubtful += begun + mark.group()
        else:
            self._add_value(begun + mark.group())
        return rest

    def _add_value(self, text: str) -> None:
        assert self._call is not None
        if self._doubtful:
            self._doubtful += text
        else:
            self._call.add(text)

    def _read_mark(self, text: str) -> str:
        """Read the rest of a mark, after its ｜DSML｜."""
        if (read := self._match_mark(text)) is None:
            return ""
        held, mark = read
        self._to_text_or_body()
        if mark is None:
            return held
        self._act(mark)
        return held[mark.end() :]

    def _match_mark(self, text: str) -> tuple[str, re.Match[str] | None] | None:
        """Add text to a mark's. None if it may become a mark; else the text after its beginning, and the mark if it is one."""
        self._held += text
        mark = _MARK_REST.match(self._held, 0, _LONGEST_MARK)
        if mark is None and len(self._held) < _LONGEST_MARK and not _NO_MARK.match(self._held):
            return None
        held, self._held = self._held, ""
        return held, mark

    def _begin_mark(self, found: str) -> None:
        """`found`: the beginning of a mark, with the white space before it."""
        self._read, self._begun = self._read_mark, found
        if self._call is None:
            space = found.removesuffix(_CLOSE if found.endswith(_CLOSE) else _OPEN)
            self._gap = "" if self._after_call else self._gap + space
            self._after_mark = True

    def _to_text_or_body(self) -> None:
        self._held = ""
        self._read = self._read_text if self._call is None else self._read_body
        self._scanner = _text_scanner(self._reasons) if self._call is None else StopStrings((_OPEN, _CLOSE))

    def _act(self, mark: re.Match[str]) -> None:
        """Carry out a mark that begins or ends a call, or begins a parameter. Ignore all others."""
        word, given, is_closing = mark["word"], _attributes(mark), self._begun.endswith(_CLOSE)
        is_whole = mark["attributes"].rstrip().endswith("/")
        name = given.get("name")
        if self._call is not None and word == "parameter":
            if not is_closing and name is not None:
                self._keep_stray()
                # A value of unknown kind is a text, unless the schema says otherwise.
                self._call.open(name, given.get("string") != "false")
                if is_whole:
                    self._call.close()
                else:
                    self._read, self._scanner = self._read_value, StopStrings(_VALUE_MARKS)
            return
        if self._call is not None and (word in _BLOCKS or word == "invoke"):
            self._end_call()
        if word == "invoke" and not is_closing and name:
            self._call, self._body, self._is_named = CallWriter(name, self._schemas.get(name)), "", False
            self._to_text_or_body()
            if is_whole:
                self._end_call()

    def _end_value(self) -> None:
        assert self._call is not None
        self._call.close()
        self._doubtful = ""
        self._to_text_or_body()

    def _end_call(self, is_closed: bool = True, is_cut: bool = False) -> None:
        call = self._call
        assert call is not None
        if is_cut:
            call.cut()
            self._body = ""
        made = bool(call.arguments) if is_cut else call.end(self._body, is_closed)
        if made:
            if not call.has_parameters:
                self._body = ""  # it was the arguments
            self._take_arguments()
            self._parts.append(AnswerDelta(tool_calls=(ToolCall(call.name, call.arguments),)))
            self._calls += 1
            self._gap = ""
        self._keep_stray()
        stray, self._stray, self._call = self._stray, [], None
        for text in stray:
            self._add(text)
        if made:
            self._gap, self._after_mark, self._after_call = "", True, True
        self._to_text_or_body()

    def _take_arguments(self) -> None:
        if self._call is not None and (new := self._call.take()):
            name = None if self._is_named else self._call.name
            self._is_named = True
            self._parts.append(AnswerDelta(call_deltas=(CallDelta(self._calls, name, new),)))

    def _keep_stray(self) -> None:
        """Keep text between the parameters of a call. It becomes content after the call."""
        if self._body.strip():
            self._stray.append(self._gap + self._body)
            self._gap = ""
        self._body = ""

    def _add(self, text: str) -> None:
        """Add text to the reasoning or the content. White space after a mark waits for what follows it."""
        if self._after_mark:
            self._gap += text
            if not text.strip():
                return
            text, self._gap, self._after_mark, self._after_call = self._gap, "", False, False
        self._emit(text)

    def _emit(self, text: str) -> None:
        if text:
            self._parts.append(AnswerDelta(reasoning_content=text) if self._reasons else AnswerDelta(content=text))


def _attributes(mark: re.Match[str]) -> dict[str, str]:
    return {key: first or second or third for key, first, second, third in _ATTRIBUTE.findall(mark["attributes"])}


def _text_scanner(reasons: bool) -> StopStrings:
    return StopStrings((*_MARKS, END_THINK) if reasons else _MARKS)


@dataclass(frozen=True)
class AssistantMessage:
    """A whole answer. ``reasoning_content`` is None if thinking was off."""

    content: str
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    def to_message(self) -> dict[str, Any]:
        """Return the answer in OpenAI's shape, for the conversation. A call that was cut is left out."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning_content is not None:
            message["reasoning_content"] = self.reasoning_content
        if calls := [call for call in self.tool_calls if is_object(call.arguments)]:
            message["tool_calls"] = [
                {"id": f"call_{i}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for i, call in enumerate(calls)
            ]
        return message


def parse_assistant(
    text: str, thinking: bool = False, tools: Sequence[Mapping[str, Any]] | None = None, is_cut: bool = False
) -> AssistantMessage:
    """Parse an answer, as `AnswerParser` does. Never fails: text that does not follow the format is content."""
    parser = AnswerParser(thinking, tools)
    answer = parser.push(text.removesuffix(EOS)) + parser.finish(is_cut)
    return AssistantMessage(answer.content, answer.reasoning_content if thinking else None, answer.tool_calls)
