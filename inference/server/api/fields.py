"""The fields that chat and plain completions share, with a bound on every number, and the SamplingParams that they become."""

import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, model_validator
from pydantic_core import PydanticCustomError

from ....kernels.errors import ArgumentError
from ...params import MAX_LOGIT_BIAS, MAX_LOGPROBS, MAX_SEED, MAX_STOP_STRINGS, SamplingParams
from ...text.grammar import StructuredOutputsParams
from ...text.schemas import place_name
from .errors import ApiError

MAX_CHOICES = 16
MAX_PROMPTS = 256
MAX_TOKENS = 2**20  # above the context length of every model
MAX_ID = 2**31 - 1
MIN_SEED = -(2**63)  # OpenAI's seeds are signed
MAX_CHARACTERS = 2**23  # the default limit on the body is lower
MAX_DEPTH = 72  # of nested JSON: a body's own few levels, and 64 of a schema in it

_HALF = re.compile("[\ud800-\udfff]")


def _whole(value: Any) -> Any:
    """JSON has one kind of number, so 2.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _all_whole(values: Any) -> Any:
    """`_whole` for the items of a list. A prompt may have 160,000 of them, nearly always integers, which need no call each."""
    if isinstance(values, list) and float in set(map(type, values)):
        return [_whole(value) for value in values]
    return values


def check_writable(body: Any) -> Any:
    """Return a body. ApiError names a field that cannot be written back: half of a surrogate pair, a number above floats' range, or
    a value that is nested too deep."""
    nodes: list[tuple[int, Any, Any]] = [(0, (), {"": body})]  # (depth, the way to it, an object or a list)
    while nodes:
        depth, way, node = nodes.pop()
        is_list = isinstance(node, list)
        if _are_plain(node) and (is_list or _are_plain(node.values())):
            continue
        for name, child in enumerate(node) if is_list else node.items():
            fault = None if is_list else _fault(name)
            if isinstance(child, dict | list):
                if depth == MAX_DEPTH:
                    fault = f"is nested too deep; expected at most {MAX_DEPTH} levels"
                elif child:
                    nodes.append((depth + 1, (way, name), child))
            elif fault is None:
                fault = _fault(child)
            if fault is not None:
                place = place_name((way, name))
                raise ApiError(400, f"{place or 'body'} {fault}", place or None)
    return body


def _fault(value: Any) -> str | None:
    if isinstance(value, str) and not value.isascii() and _HALF.search(value):
        return "holds half of a surrogate pair; expected Unicode text"
    if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        return f"is {'beyond the range of floats' if value == value else 'NaN'}; expected a finite number"
    return None


def _are_plain(values: Collection[Any]) -> bool:
    """Tell whether no value has a fault, without a look at each, as for token ids and texts in ASCII. False decides nothing."""
    kinds = set(map(type, values))
    if kinds <= {int}:
        return max(map(abs, values), default=0) <= MAX_SEED
    return kinds == {str} and all(map(str.isascii, values))


def _seed(value: int) -> int:
    # pydantic's own limits are rounded to floats.
    if not MIN_SEED <= value <= MAX_SEED:
        raise PydanticCustomError("seed", f"Input should be between {MIN_SEED} and {MAX_SEED}")
    return value


Integer = Annotated[int, BeforeValidator(_whole)]
Seed = Annotated[Integer, AfterValidator(_seed), Field(json_schema_extra={"minimum": MIN_SEED, "maximum": MAX_SEED})]
Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
StopString = Annotated[str, Field(min_length=1, max_length=256)]
# A list is read up to its first error: collecting the errors of a body of a million wrong items takes 17 s.
TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=MAX_ID)]], Field(fail_fast=True), BeforeValidator(_all_whole)]
Prompt = Annotated[TokenIds, Field(min_length=1, max_length=MAX_TOKENS)]
JsonObject = dict[str, Any]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Whole(Strict):
    """An object whose unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_unknown_nulls(cls, value: Any) -> Any:
        """A field that is null is absent: clients send all that they know."""
        if not isinstance(value, dict) or None not in value.values():
            return value
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {name: given for name, given in value.items() if given is not None or name in known}


class Body(Whole):
    """A whole request."""

    _writable = model_validator(mode="before")(check_writable)


def by_type(noun: str, names: Mapping[str, str], default: str | None = None) -> Discriminator:
    """Choose the model of an object by its `type`. names: of the models, which are their tags; default: without a type."""

    def name(value: Any) -> str | None:
        if not isinstance(value, dict):
            # Any of the models refuses a value that is not an object.
            return type(value).__name__ if isinstance(value, BaseModel) else next(iter(names.values()))
        kind = value.get("type")
        kind = default if kind is None else kind
        return names.get(kind) if isinstance(kind, str) else None

    message = f"this type of {noun} is not served; expected {', '.join(names)}"
    return Discriminator(name, custom_error_type=noun, custom_error_message=message)


class StreamOptions(Whole):
    include_usage: bool | None = Field(None, description="end with a chunk that has the numbers of tokens")
    continuous_usage_stats: bool | None = Field(
        None, description="every chunk has the numbers so far, unless include_usage is false"
    )
    include_obfuscation: bool | None = Field(None, description="ignored: no chunk has it")


class StructuredOutputs(Whole):
    """What the answer must look like: one of these, as vLLM spells them."""

    json_: JsonObject | Text | None = Field(None, alias="json", description="a JSON schema")
    json_object: bool | None = Field(None, description="any JSON object")
    regex: Text | None = None
    choice: Annotated[list[Text], Field(fail_fast=True, min_length=1, max_length=4096)] | None = None
    grammar: Text | None = Field(None, description="in Lark's or GBNF's notation")


class JsonSchema(Whole):
    name: Text | None = None
    description: Text | None = None
    schema_: JsonObject | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Whole):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> "ResponseFormat":
        if self.type == "json_schema" and (self.json_schema is None or self.json_schema.schema_ is None):
            raise ValueError("type is 'json_schema'; expected json_schema.schema with it")
        return self


class CommonFields(Body):
    """The fields of every request for an answer. Null means the default, which generation_config.json may give."""

    model: Text | None = Field(None, description="the model that /v1/models lists; the default")
    temperature: float | None = Field(None, ge=0, le=10, description="0 is greedy; 1 by default")
    top_p: float | None = Field(None, gt=0, le=1, description="1 by default")
    top_k: Integer | None = Field(None, ge=-1, le=MAX_ID, description="0 or -1: all tokens, which is the default")
    stream: bool | None = False


class IgnoredFields(CommonFields):
    """Fields of OpenAI's schema that do not change the text of an answer."""

    user: Text | None = Field(None, description="ignored, as the next ones are")
    store: bool | None = None
    metadata: JsonObject | None = None
    service_tier: Text | None = None
    safety_identifier: Text | None = None
    prompt_cache_key: Text | None = None
    prompt_cache_retention: Text | None = None
    prompt_cache_options: JsonObject | None = None


class SamplingFields(IgnoredFields):
    """The fields that chat and plain completions share."""

    min_p: float | None = Field(None, ge=0, le=1, description="0 by default")
    n: Integer | None = Field(1, ge=1, le=MAX_CHOICES)
    seed: Seed | None = None
    stop: StopString | Annotated[list[StopString], Field(fail_fast=True, max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: Annotated[TokenIds, Field(max_length=MAX_STOP_STRINGS)] | None = None
    ignore_eos: bool | None = False
    presence_penalty: float | None = Field(0.0, ge=-2, le=2)
    frequency_penalty: float | None = Field(0.0, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100, description="1 by default")
    min_tokens: Integer | None = Field(None, ge=0, le=MAX_TOKENS, description="tokens before the answer may end")
    logit_bias: Annotated[dict[str, float], Field(max_length=MAX_LOGIT_BIAS)] | None = Field(
        None, description="by token id, as text: added to its logit, -100 to 100"
    )
    prompt_logprobs: Integer | None = Field(
        None, ge=0, le=MAX_LOGPROBS, description="of the prompt's tokens; not in a stream"
    )
    structured_outputs: StructuredOutputs | None = None
    guided_json: JsonObject | Text | None = Field(
        None, description="older name of structured_outputs.json; so the next ones"
    )
    guided_regex: Text | None = None
    guided_choice: Annotated[list[Text], Field(fail_fast=True, min_length=1, max_length=4096)] | None = None
    guided_grammar: Text | None = None
    response_format: ResponseFormat | None = None
    stream_options: StreamOptions | None = None
    return_selections: bool | None = Field(
        False, description="also return which positions each token's query attended to, layer by layer"
    )


_NUMBERS = (
    *("temperature", "top_p", "top_k", "min_p", "stop", "stop_token_ids", "ignore_eos", "min_tokens"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
)
_KINDS = ("json", "regex", "choice", "grammar")


def sampling_params(
    request: SamplingFields, max_tokens: int | None, logprobs: int | None, defaults: SamplingParams
) -> SamplingParams:
    """The request's SamplingParams; null fields take their defaults. Raises ApiError for a combination that is not allowed."""
    if request.stream and request.prompt_logprobs is not None:  # chunks have no place for them
        message = f"prompt_logprobs is {request.prompt_logprobs}; expected null with stream"
        raise ApiError(400, message, "prompt_logprobs")
    given: dict[str, Any] = {name: value for name in _NUMBERS if (value := getattr(request, name)) is not None}
    if request.logit_bias:
        given["logit_bias"] = _logit_bias(request.logit_bias)
    seed = None if request.seed is None else request.seed & MAX_SEED
    try:
        given["structured_outputs"] = _structured_outputs(request)
        return replace(defaults, **given, seed=seed, max_tokens=max_tokens, logprobs=logprobs, n=request.n or 1)
    except ArgumentError as error:
        raise ApiError(400, str(error), error.name.split(".")[0]) from None


def response_schema(body: SamplingFields) -> Mapping[str, Any] | None:
    """The schema that the answer must have, by response_format."""
    wanted = body.response_format
    return wanted.json_schema.schema_ if wanted is not None and wanted.json_schema is not None else None


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


def form_field(body: SamplingFields) -> str:
    """The field that says what the answer must look like; errors name it."""
    if body.response_format is not None and body.response_format.type != "text":
        return "response_format"
    guided = [name for kind in _KINDS if getattr(body, name := f"guided_{kind}") is not None]
    return guided[0] if guided else "structured_outputs"
