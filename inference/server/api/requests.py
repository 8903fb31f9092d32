"""From a request's fields to SamplingParams: defaults, structured outputs, and the grammar of the calls that it demands."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....kernels.errors import ArgumentError
from ...params import MAX_SEED, SamplingParams
from ...text.dsml import call_grammar
from ...text.grammar import StructuredOutputsParams
from ...text.messages import ChatFormat
from ...text.tokenizer import DSML, Tokenizer
from .errors import ApiError
from .fields import SamplingFields
from .protocol import ChatRequest, ConversationFields, NamedTool

_NUMBERS = (
    *("temperature", "top_p", "top_k", "min_p", "stop", "stop_token_ids", "ignore_eos", "min_tokens"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
)
_KINDS = ("json", "regex", "choice", "grammar")


def sampling_params(
    request: SamplingFields, max_tokens: int | None, logprobs: int | None, defaults: SamplingParams
) -> SamplingParams:
    """The request's SamplingParams; null fields take their defaults. Raises ApiError for a combination that is not allowed."""
    given: dict[str, Any] = {name: value for name in _NUMBERS if (value := getattr(request, name)) is not None}
    if request.logit_bias:
        given["logit_bias"] = _logit_bias(request.logit_bias)
    seed = None if request.seed is None else request.seed & MAX_SEED
    try:
        given["structured_outputs"] = _structured_outputs(request)
        return replace(defaults, **given, seed=seed, max_tokens=max_tokens, logprobs=logprobs)
    except ArgumentError as error:
        raise ApiError(400, str(error), error.name.split(".")[0]) from None


def answer_params(
    body: ChatRequest, params: SamplingParams, tokenizer: Tokenizer, chat_format: ChatFormat
) -> SamplingParams:
    """The parameters of the answer to a conversation: constrained to calls where the request demands them, and kept from them where
    it forbids them. Raises ApiError."""
    if body.tool_choice == "none" and (mark := tokenizer.special_ids.get(DSML)) is not None:
        params = replace(params, logit_bias={**(params.logit_bias or {}), mark: -100.0})
    grammar = _calls(body, params.structured_outputs, tokenizer, chat_format)
    if grammar is not None:
        params = replace(params, structured_outputs=StructuredOutputsParams(grammar=grammar))
    return params.for_answer(body.starts_thinking)


def response_schema(body: SamplingFields) -> Mapping[str, Any] | None:
    """The schema that the answer must have, by response_format."""
    wanted = body.response_format
    return wanted.json_schema.schema_ if wanted is not None and wanted.json_schema is not None else None


def form_field(body: SamplingFields) -> str:
    """The field that says what the answer must look like; errors name it."""
    if body.response_format is not None and body.response_format.type != "text":
        return "response_format"
    guided = [name for kind in _KINDS if getattr(body, name := f"guided_{kind}") is not None]
    is_chat = isinstance(body, ChatRequest) and body.structured_outputs is None and body.tools
    return guided[0] if guided else "tools" if is_chat else "structured_outputs"


def _structured_outputs(request: SamplingFields) -> StructuredOutputsParams | None:
    given: list[tuple[str, Any]] = []
    if (fields := request.structured_outputs) is not None:
        values = [("json", fields.json_), *((name, getattr(fields, name)) for name in (*_KINDS[1:], "json_object"))]
        given += [(name, value) for name, value in values if value is not None]
        if not given:
            expected = "one of json, json_object, regex, choice, grammar"
            raise ArgumentError("structured_outputs", "nothing", expected, "has")
    given += [(name, value) for name in _KINDS if (value := getattr(request, f"guided_{name}")) is not None]
    if request.response_format is not None and request.response_format.type == "json_object":
        given.append(("json_object", True))
    elif (schema := response_schema(request)) is not None:
        given.append(("json", schema))
    if len(given) > 1:
        names = ", ".join(name for name, _ in given)
        message = f"structured_outputs, guided_* and response_format have {names}; expected one in all"
        raise ApiError(400, message, "structured_outputs")
    return StructuredOutputsParams(**dict(given)) if given and given[0] != ("json_object", False) else None


def _logit_bias(biases: Mapping[str, float]) -> dict[int, float]:
    if not all(token.isascii() and token.isdecimal() and len(token) < 10 for token in biases):
        raise ApiError(400, "logit_bias holds a name that is no token id; expected ids as decimal text", "logit_bias")
    return {int(token): float(bias) for token, bias in biases.items()}


def _calls(
    body: ConversationFields, wanted: StructuredOutputsParams | None, tokenizer: Tokenizer, chat_format: ChatFormat
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
            return call_grammar(tools, control, one=one, answer=answer) if isinstance(answer, Mapping) else None
        is_strict = any(tool["function"].get("strict") for tool in tools)
        return call_grammar(tools, control, one=one, free=True) if is_strict else None
    names = [tool["function"]["name"] for tool in tools]
    expected = None
    if not names or (name is not None and name not in names):
        expected = f"a function in tools, which has {', '.join(names) or 'none'}"[:400]
    elif chat_format != "v3.2":
        expected = "auto or none, because this model's chat format has no other"
    elif wanted is not None:
        expected = "auto or none with response_format or structured_outputs, because the answer cannot be both"
    if expected is not None:
        raise ApiError(400, f"tool_choice is {name or 'required'}; expected {expected}", "tool_choice")
    chosen = [tool for tool in tools if name in (None, tool["function"]["name"])]
    return call_grammar(chosen, control, one=one or name is not None)
