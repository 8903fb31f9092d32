"""A checkpoint's own Jinja chat template, rendered in a sandbox."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from .errors import MessageError
from .tokenizer import BOS, END_THINK, EOS, Special, Tokenizer

# Private-use code points, which stand for control tokens spelled in messages while the template runs.
_PRIVATE = range(0xF0000, 0xFFFFE)
_IS_PRIVATE = re.compile(f"[{chr(_PRIVATE[0])}-{chr(_PRIVATE[-1])}]")


def render_template(
    messages: Sequence[Mapping[str, Any]],
    tokenizer: Tokenizer,
    thinking: bool,
    tools: Sequence[Mapping[str, Any]] | None,
) -> list[str | Special]:
    """The prompt as pieces. Control tokens that the template writes are ``Special``; those spelled in messages or tools are
    text. Raises MessageError, also for tools that the template would ignore.
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
    """An earlier answer keeps only the text after its reasoning."""
    if message["role"] != "assistant" or not message.get("content"):
        return message
    return {**message, "content": message["content"].rpartition(END_THINK)[2]}


@lru_cache(maxsize=8)
def _compile(source: str) -> tuple[Any, frozenset[str]]:
    """(the template, the variables that it reads), in the environment that transformers gives to chat templates."""
    import jinja2.ext
    import jinja2.meta
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def to_json(value: Any, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=False, **options)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    variables = frozenset(jinja2.meta.find_undeclared_variables(environment.parse(source)))
    return environment.from_string(source), variables


class _Masking:
    """Replaces control tokens spelled in values by private-use characters, and back."""

    def __init__(self, tokenizer: Tokenizer, values: object):
        taken = set(_private_characters(values))
        unused = (chr(code) for code in _PRIVATE if chr(code) not in taken)
        self._tokenizer = tokenizer
        self._masks = {token: next(unused) for token in tokenizer.special_ids}
        # Of the tokens that the values do spell.
        self._originals: dict[str, str] = {}

    def mask(self, value: Any) -> Any:
        if isinstance(value, str):
            pieces = self._tokenizer.split_special(value)
            if len(pieces) == 1 and isinstance(pieces[0], str):
                return value
            self._originals |= {self._masks[p.text]: p.text for p in pieces if isinstance(p, Special)}
            return "".join(self._masks[p.text] if isinstance(p, Special) else p for p in pieces)
        if isinstance(value, Mapping):
            return {self.mask(key): self.mask(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self.mask(entry) for entry in value]
        return value

    def unmask(self, text: str) -> str:
        for mask, token in self._originals.items():
            text = text.replace(mask, token)
        return text


def _private_characters(value: object) -> Iterator[str]:
    """Those of _PRIVATE in the texts of a value."""
    if isinstance(value, str):
        if not value.isascii():
            yield from _IS_PRIVATE.findall(value)
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _private_characters(key)
            yield from _private_characters(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _private_characters(entry)
