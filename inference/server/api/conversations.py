"""From a conversation to the prompt and the parameters of its answer."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ....kernels.errors import ArgumentError
from ...params import SamplingParams
from ...text.dsml import call_grammar
from ...text.errors import MessageError, TooManyTokens
from ...text.grammar import StructuredOutputsParams, check_function
from ...text.messages import ChatFormat, conversation_pieces
from ...text.tokenizer import DSML, Tokenizer
from .context import ApiContext
from .errors import ApiError
from .fields import form_field
from .protocol import ChatRequest, ConversationFields, NamedTool

MessageName = Callable[[int], str]  # how a request calls the message of an index


def message_name(index: int) -> str:
    """The name of a message in a chat request."""
    return f"messages[{index}]"


def conversation_ids(
    context: ApiContext,
    conversation: ConversationFields,
    schema: Mapping[str, Any] | None = None,
    name: MessageName = message_name,
) -> list[int]:
    """Token ids of a conversation's prompt; schema: of the JSON that the request expects. Raises ApiError, also for messages that
    the chat format cannot express."""
    adds, field = conversation.add_generation_prompt, "add_generation_prompt"
    if adds is False and not conversation.continues:
        raise ApiError(400, f"{field} is false; expected true: an answer without it is none of the model's", field)
    if adds and conversation.continue_final_message:
        raise ApiError(400, f"{field} is true; expected false with continue_final_message", field)
    tools, thinking, continues = conversation.plain_tools(), conversation.thinking, conversation.continues
    plain = [message.model_dump(exclude_none=True) for message in conversation.messages]
    chat_format = context.service.llm.chat_format
    try:
        pieces = conversation_pieces(plain, context.tokenizer, thinking, tools, chat_format, continues, schema)
    except MessageError as error:
        text = error.text if error.index is None else f"{name(error.index)}{error.text}"
        param = re.match("tools|input|instructions", text)
        raise ApiError(400, text, param[0] if param else "messages") from None
    context.check_might_fit(pieces)
    try:
        return context.tokenizer.encode_pieces(pieces, context.max_model_len)
    except TooManyTokens as error:
        raise context.too_long(f"at least {error.count} tokens") from None


def answer_params(
    body: ChatRequest, params: SamplingParams, tokenizer: Tokenizer, chat_format: ChatFormat
) -> SamplingParams:
    """The parameters of the answer to a conversation: constrained to calls where the request demands them, and kept from them where
    it forbids them. Raises ApiError."""
    if body.tool_choice == "none" and (mark := tokenizer.special_ids.get(DSML)) is not None:
        params = replace(params, logit_bias={**(params.logit_bias or {}), mark: -100.0})
    try:
        grammar = _calls(body, params.structured_outputs, tokenizer, chat_format)
    except ArgumentError as error:
        if error.name.startswith("structured_outputs"):
            error = error.renamed(form_field(body))
        if error.name == "parameters":  # of all functions together
            error = error.renamed("tools")
        raise ApiError(400, str(error), error.name.partition(" ")[0]) from None
    if grammar is not None:
        params = replace(params, structured_outputs=StructuredOutputsParams(grammar=grammar))
    if body.tool_choice not in ("auto", "none", None):  # the answer has no content that could be ended
        params = replace(params, stop=())
    return params.for_answer(body.starts_thinking)


def grammar_field(body: ChatRequest) -> str:
    """The field that says what the answer must look like; errors name it."""
    field = form_field(body)
    return "tools" if field == "structured_outputs" and body.structured_outputs is None and body.tools else field


def _calls(
    body: ChatRequest, wanted: StructuredOutputsParams | None, tokenizer: Tokenizer, chat_format: ChatFormat
) -> str | None:
    """The grammar of the calls that the answer must or may consist of; None if nothing constrains them. Raises ApiError."""
    tools = body.plain_tools() or []
    choice = body.tool_choice or "auto"
    name = choice.function.name if isinstance(choice, NamedTool) else None
    control, one = tokenizer.special_ids.get(DSML), body.parallel_tool_calls is False
    if choice in ("auto", "none"):
        if not tools or chat_format != "v3.2":
            return None
        if wanted is not None:
            answer = {"type": "object"} if wanted.json_object else wanted.json
            if not isinstance(answer, Mapping):
                return None
            wanted.description()  # checks it
            _check_functions(tools)
            return call_grammar(tools, control, one=one, answer=answer)
        if not any(tool["function"].get("strict") for tool in tools):
            return None
        _check_functions(tools, only_strict=True)
        return call_grammar(tools, control, one=one, free=True)
    names = [tool["function"]["name"] for tool in tools]
    expected = None
    if not names or (name is not None and name not in names):
        expected = f"a function in tools, which has {', '.join(names) or 'none'}"[:400]
    elif chat_format != "v3.2":
        expected = "auto or none, because this model's chat format has no other"
    elif wanted is not None:
        expected = f"auto or none with {form_field(body)}, because the answer cannot be both"
    if expected is not None:
        raise ApiError(400, f"tool_choice is {name or 'required'}; expected {expected}", "tool_choice")
    _check_functions(tools, name)
    chosen = [tool for tool in tools if name in (None, tool["function"]["name"])]
    return call_grammar(chosen, control, one=one or name is not None)


def _check_functions(tools: list[dict[str, Any]], name: str | None = None, only_strict: bool = False) -> None:
    """Check the functions of which calls must keep the schema: the named one, the strict ones, or all. ArgumentError names one."""
    for index, function in enumerate(tool["function"] for tool in tools):
        if name in (None, function["name"]) and (function.get("strict") or not only_strict):
            try:
                check_function(function)
            except ArgumentError as error:
                raise error.renamed(f"tools.{index}.function.{error.name} of {function['name']!r}") from None
