"""Conversations to token ids, in both of the family's chat formats.

DeepSeek-V3.2-Exp has a Jinja chat template ("v3.2-exp"). DeepSeek-V3.2 has none; its messages are encoded by the code here,
after the release's encoding/encoding_dsv32.py ("v3.2"). The text of users, tools and the model is always encoded as plain
text: words that spell a control token do not become one.
"""

import json
import reprlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Literal, get_args

from ...kernels.errors import ArgumentError
from .dsml import call_pieces, tools_pieces
from .errors import MessageError
from .tokenizer import ASSISTANT, BOS, END_THINK, EOS, THINK, USER, Special, Tokenizer
from .tool_arguments import parameters

# Private-use code points, which stand for control tokens spelled in messages while the template runs.
_PRIVATE = range(0xF0000, 0xFFFFE)


def render_template(
    messages: Sequence[Mapping[str, Any]],
    tokenizer: Tokenizer,
    thinking: bool,
    tools: Sequence[Mapping[str, Any]] | None,
) -> list[str | Special]:
    """Render the prompt as pieces. Control tokens of the template are ``Special``; control tokens spelled in messages or tools
    are text. Raises MessageError, also for tools that the template would ignore.
    """
    import jinja2

    assert tokenizer.chat_template is not None, "resolve_chat_format checks this"
    try:
        template, variables = _compile(tokenizer.chat_template)
        if tools and "tools" not in variables:
            raise MessageError(
                f"tools has {len(tools)} functions; expected none, because this checkpoint's chat template takes none "
                "(chat_format v3.2 does)"
            )
        masking = _Masking(tokenizer, (messages, tools))
        text = template.render(
            messages=[masking.mask(_without_reasoning(message)) for message in messages],
            tools=masking.mask(tools) if tools else None,
            thinking=thinking,
            enable_thinking=thinking,
            add_generation_prompt=True,
            bos_token=BOS,
            eos_token=EOS,
        )
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"the chat template fails: {' '.join(str(error).split())}") from error
    return [piece if isinstance(piece, Special) else masking.unmask(piece) for piece in tokenizer.split_special(text)]


def _without_reasoning(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep only the text after the reasoning of an earlier answer."""
    if message["role"] != "assistant" or not message.get("content"):
        return message
    return {**message, "content": message["content"].rpartition(END_THINK)[2]}


@lru_cache(maxsize=8)
def _compile(source: str) -> tuple[Any, frozenset[str]]:
    """Compile a template in the environment of transformers' chat templates; return it and the variables that it reads."""
    import jinja2.ext
    import jinja2.meta
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    variables = frozenset(jinja2.meta.find_undeclared_variables(environment.parse(source)))
    return environment.from_string(source), variables


class _Masking:
    """Replaces control tokens spelled in values by private-use characters, and back."""

    def __init__(self, tokenizer: Tokenizer, values: object):
        taken = set(json.dumps(values, ensure_ascii=False, default=str))
        unused = (chr(code) for code in _PRIVATE if chr(code) not in taken)
        self._tokenizer = tokenizer
        self._masks: dict[str, str] = defaultdict(unused.__next__)  # of tokens that occur in the values

    def mask(self, value: Any) -> Any:
        if isinstance(value, str):
            pieces = self._tokenizer.split_special(value)
            return "".join(self._masks[p.text] if isinstance(p, Special) else p for p in pieces)
        if isinstance(value, Mapping):
            return {self.mask(key): self.mask(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self.mask(entry) for entry in value]
        return value

    def unmask(self, text: str) -> str:
        for token, mask in self._masks.items():
            text = text.replace(mask, token)
        return text


ChatFormat = Literal["v3.2", "v3.2-exp"]
Message = Mapping[str, Any]
Pieces = list[str | Special]
# A developer message is how a search agent writes a user turn.
USER_ROLES = ("user", "developer")


def encode_messages(
    messages: Sequence[Message],
    tokenizer: Tokenizer,
    thinking: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    chat_format: ChatFormat | None = None,
) -> list[int]:
    """Encode the prompt for the next assistant turn. Arguments and errors: see `conversation_pieces`."""
    return tokenizer.encode_pieces(conversation_pieces(messages, tokenizer, thinking, tools, chat_format))


def conversation_pieces(
    messages: Sequence[Message],
    tokenizer: Tokenizer,
    thinking: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    chat_format: ChatFormat | None = None,
    continues: bool = False,
    schema: Mapping[str, Any] | None = None,
) -> Pieces:
    """Write the prompt for the next assistant turn, as text and control tokens.

    continues: the last message is the beginning of that turn. schema: of the JSON that is expected, which only v3.2 shows.
    Messages have OpenAI's shape: role, content (text or a list of text parts), tool_calls, tool_call_id,
    reasoning_content (or reasoning). ``chat_format`` is what ``resolve_chat_format`` returned; without it, the checkpoint decides.
    Raises MessageError.
    """
    turns = [_normalized(index, message) for index, message in enumerate(messages)]
    _check_tools(tools)
    turns = _adjoined(turns)
    begun: Pieces = []
    if continues and turns:
        begun = _begun(len(turns) - 1, turns.pop(), thinking)
    if not turns:
        if begun:
            raise MessageError("messages has only the beginning of the answer; expected a user's message before it")
        raise MessageError("messages is empty; expected at least 1 message")
    turns = _seated(turns)
    if turns[-1]["role"] not in (*USER_ROLES, "tool"):
        expected = "the last message to be a user's or a tool's"
        raise MessageError(f".role is {turns[-1]['role']!r}; expected {expected}", len(turns) - 1)
    if resolve_chat_format(tokenizer, chat_format) == "v3.2":
        return v32_pieces(turns, thinking, tools, schema) + begun
    return render_template(turns, tokenizer, thinking, tools) + begun


def _seated(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put system messages that follow a user's before it. Those that follow a tool's, or end the conversation, become a user's.

    The formats have no place for them after the mark with which the answer begins.
    """
    seated: list[dict[str, Any]] = []
    for turn in turns:
        place = len(seated)
        if turn["role"] == "system":
            while place and seated[place - 1]["role"] in USER_ROLES:
                place -= 1
            if place < len(seated) and place and seated[place - 1]["role"] == "system":
                turn = {**turn, "content": f"\n\n{turn['content']}"}  # as DeepSeek's templates join them
            elif place == len(seated) and place and seated[-1]["role"] == "tool":
                turn = {**turn, "role": "user"}
        seated.insert(place, turn)
    if seated[-1]["role"] == "system":
        seated[-1] = {**seated[-1], "role": "user"}
    return seated


def starts_thinking(message: Message, thinking: bool, continues: bool) -> bool:
    """Tell whether an answer starts inside its reasoning; `message` is the conversation's last.

    An answer that continues a message does so if the message has only reasoning.
    """
    return thinking and (not continues or bool(message.get("reasoning_content") and not message.get("content")))


def _begun(index: int, turn: Message, thinking: bool) -> Pieces:
    """Write the text of an assistant turn that the answer continues."""
    if turn["role"] != "assistant" or turn.get("tool_calls"):
        expected = "an assistant's without calls, to be continued"
        raise MessageError(f" is a message of role {turn['role']!r}; expected {expected}", index)
    reasoning = [turn.get("reasoning_content") or ""] if thinking else []
    if starts_thinking(turn, thinking, continues=True):
        return reasoning
    return [*reasoning, *([Special(END_THINK)] if thinking else []), turn["content"]]


def resolve_chat_format(tokenizer: Tokenizer | None, chat_format: ChatFormat | None = None) -> ChatFormat:
    """Choose the format of conversations: the given one, or else the checkpoint's own.

    A checkpoint with a chat template uses it ("v3.2-exp"); any other uses "v3.2". Raises ArgumentError for
    "v3.2-exp" without a chat template.
    """
    has_template = tokenizer is not None and tokenizer.chat_template is not None
    if chat_format is None:
        return "v3.2-exp" if has_template else "v3.2"
    if chat_format not in get_args(ChatFormat):
        raise ArgumentError("chat_format", f"{chat_format!r}", "v3.2 or v3.2-exp")
    if chat_format == "v3.2-exp" and not has_template:
        raise ArgumentError("chat_format", "'v3.2-exp'", "'v3.2', because this checkpoint has no chat template")
    return chat_format


def v32_pieces(
    messages: Sequence[Message],
    thinking: bool,
    tools: Sequence[Mapping[str, Any]] | None = None,
    schema: Mapping[str, Any] | None = None,
) -> Pieces:
    """Write a whole conversation in DeepSeek-V3.2's format. It may also end in an assistant turn.

    Only assistant turns after the last user turn keep their reasoning. Two points differ from the published program:
    developer messages before the last user turn are kept, and assistant turns after it may lack reasoning.
    """
    turns = [dict(message) for message in messages]
    first: dict[str, Any] = {"tools": tools} if tools else {}
    if schema:
        first["response_format"] = schema
    pieces: Pieces = [Special(BOS)]
    if turns and turns[0]["role"] == "system":
        turns[0] |= first
    else:
        pieces += _appendix(first)
    last_user = max((index for index, turn in enumerate(turns) if turn["role"] in USER_ROLES), default=-1)
    for index, turn in enumerate(turns):
        # From the last user turn on, every assistant turn starts with reasoning.
        thinks = thinking and index >= last_user
        role, content = turn["role"], turn["content"] or ""
        if role == "system":
            pieces += [content, *_appendix(turn)]
        elif role in USER_ROLES:
            question: Pieces = [content]
            if role == "developer":
                question = [*_appendix(turn), f"\n\n# The user's message is: {content}"]
            pieces += [Special(USER), *question, Special(ASSISTANT), Special(THINK if thinks else END_THINK)]
        elif role == "assistant":
            if thinks:
                pieces += [turn.get("reasoning_content") or "", Special(END_THINK)]
            pieces.append(content)
            if turn.get("tool_calls"):
                pieces += ["\n\n", *call_pieces([_call(index, call) for call in turn["tool_calls"]])]
            pieces.append(Special(EOS))
        elif index == 0 or turns[index - 1]["role"] != "tool":
            results = "".join(f"\n<result>{result}</result>" for result in _results(turns, index))
            pieces.append(f"\n\n<function_results>{results}\n</function_results>\n\n")
            pieces.append(Special(THINK if thinks else END_THINK))
    return pieces


def _appendix(turn: Message) -> Pieces:
    """Write the sections on tools and response format, which follow a system text or precede a developer text."""
    pieces: Pieces = []
    if turn.get("tools"):
        pieces += ["\n\n", *tools_pieces(turn["tools"])]
    if turn.get("response_format"):
        schema = json.dumps(turn["response_format"], ensure_ascii=False)
        pieces.append(
            f"\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{schema}"
        )
    return pieces


def _call(index: int, call: Mapping[str, Any]) -> tuple[str, list[tuple[str, str, bool]]]:
    function = call["function"]
    text = function.get("arguments") or "{}"
    if (arguments := parameters(text)) is None:
        raise MessageError(
            f".tool_calls has arguments {text!r:.50}; expected a JSON object, or the beginning that a cut call has",
            index,
        )
    return function["name"], arguments


def _results(turns: Sequence[Message], start: int) -> list[str]:
    """Return the contents of the tool messages from ``start``, in the order of the calls that they answer."""
    end = start
    while end < len(turns) and turns[end]["role"] == "tool":
        end += 1
    results = turns[start:end]
    calls = (turns[start - 1].get("tool_calls") or ()) if start else ()
    if len(calls) != len(results):
        expected = f"{len(calls)}, one for each call of the message before them"
        raise MessageError(f" starts {len(results)} tool messages; expected {expected}", start)
    order = {str(call.get("id")): index for index, call in enumerate(calls)}
    ids = [str(result.get("tool_call_id")) for result in results]
    if len(order) == len(calls) and set(ids) == set(order):
        results = [result for _, result in sorted(zip(ids, results, strict=True), key=lambda pair: order[pair[0]])]
    return [result["content"] or "" for result in results]


def _adjoined(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put results that come later right after the calls that they answer by id, where the formats have them.

    An assistant's text between them belongs to the turn that calls: the model wrote it after its calls.
    """
    ordered: list[dict[str, Any]] = []
    called: set[str] = set()  # ids of calls so far
    for turn in turns:
        called |= {str(call.get("id")) for call in turn.get("tool_calls") or ()}
        answers = str(turn.get("tool_call_id")) if turn["role"] == "tool" else None
        place = _place(ordered, answers) if answers is not None and answers in called else len(ordered)
        between = ordered[place:]
        while between and between[0]["role"] == "assistant" and not between[0].get("tool_calls"):
            said = between.pop(0)
            caller = next(each for each in reversed(ordered[:place]) if each["role"] == "assistant")
            for key in ("content", "reasoning_content"):
                if said.get(key):
                    caller[key] = (caller.get(key) or "") + said[key]
        ordered[place:] = [turn, *between]
    return ordered


def _place(turns: Sequence[Message], call_id: str) -> int:
    """Return the place after the latest call with this id and the results that it already has."""
    place = len(turns)
    while not any(str(call.get("id")) == call_id for call in turns[place - 1].get("tool_calls") or ()):
        place -= 1
    while place < len(turns) and turns[place]["role"] == "tool":
        place += 1
    return place


def _normalized(index: int, message: Message) -> dict[str, Any]:
    """Return the message with its content as one text and its calls' arguments as JSON text. Raises MessageError."""
    if not isinstance(message, Mapping):
        raise MessageError(f" is {message!r:.50}; expected an object", index)
    role = message.get("role")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise MessageError(f".role is {role!r:.50}; expected system, developer, user, assistant or tool", index)
    if message.get("function_call") is not None:  # OpenAI's older field, which would be left out
        raise MessageError(f".function_call is {message['function_call']!r:.50}; expected tool_calls", index)
    turn = {key: value for key, value in message.items() if value is not None}
    if not turn.get("reasoning_content") and "reasoning" in turn:  # vLLM's name
        turn["reasoning_content"] = turn["reasoning"]
    turn["content"] = _text(index, message.get("content"))
    if turn["content"] is None and (role != "assistant" or not message.get("tool_calls")):
        if role != "assistant" and role != "system":
            raise MessageError(f".content is None; expected text in a {role} message", index)
        turn["content"] = ""
    if "reasoning_content" in turn and not isinstance(turn["reasoning_content"], str):
        raise MessageError(f".reasoning_content is {turn['reasoning_content']!r:.50}; expected text", index)
    if calls := message.get("tool_calls"):
        if not isinstance(calls, list | tuple):
            raise MessageError(f".tool_calls is {calls!r:.50}; expected a list", index)
        turn["tool_calls"] = [_normalized_call(index, call) for call in calls]
    _check_tools(message.get("tools"), index)
    return turn


def _check_tools(tools: Any, index: int | None = None) -> None:
    if tools is None:
        return
    dot = "" if index is None else "."
    for tool in tools if isinstance(tools, list | tuple) else [None]:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            text = (
                f"{dot}tools is {reprlib.repr(tools):.50}; expected a list of functions with names, in OpenAI's shape"
            )
            raise MessageError(text, index)
    try:
        json.dumps(tools, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(
            f"{dot}tools is {reprlib.repr(tools):.50}; expected JSON, and this is not ({error})", index
        ) from None


def _normalized_call(index: int, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise MessageError(f".tool_calls holds {call!r:.50}; expected a function with a name", index)
    arguments = function.get("arguments", "{}")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _text(index: int, content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            return "\n".join(texts)
    expected = "text or a list of text parts: this model reads only text"
    raise MessageError(f".content is {content!r:.50}; expected {expected}", index)
