"""A checkpoint's own Jinja chat template, rendered in a sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from .errors import MessageError
from .tokenizer import BOS, END_THINK, EOS, Special, Tokenizer

# Stand-ins for control words inside messages, while the template runs: code points that mean nothing to anyone.
_PRIVATE = range(0xF0000, 0xFFFFE)


def render_template(
    messages: Sequence[Mapping[str, Any]],
    tokenizer: Tokenizer,
    thinking: bool,
    tools: Sequence[Mapping[str, Any]] | None,
) -> list[str | Special]:
    """The prompt as pieces. Control words spelled in messages or tools come out as text, those of the template as
    control tokens. Raises MessageError, also for tools that the template would leave out.
    """
    import jinja2

    assert tokenizer.chat_template is not None  # resolve_chat_format has seen to it
    try:
        template, variables = _compile(tokenizer.chat_template)
        if tools and "tools" not in variables:
            raise MessageError("tools: this checkpoint's chat template takes none; chat_format v3.2 does")
        shield = _Shield(tokenizer, (messages, tools))
        text = template.render(
            messages=[shield.cover(_history(message)) for message in messages],
            tools=shield.cover(tools) if tools else None,
            thinking=thinking,
            enable_thinking=thinking,
            add_generation_prompt=True,
            bos_token=BOS,
            eos_token=EOS,
        )
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"chat template: {' '.join(str(error).split())}") from error
    return [piece if isinstance(piece, Special) else shield.uncover(piece) for piece in tokenizer.split_special(text)]


def _history(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of earlier answers only what follows the reasoning stays."""
    if message["role"] != "assistant" or not message.get("content"):
        return message
    return {**message, "content": message["content"].rpartition(END_THINK)[2]}


@lru_cache(maxsize=8)
def _compile(source: str) -> tuple[Any, frozenset[str]]:
    """(the template, the variables it reads), in the environment that transformers gives to chat templates."""
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


class _Shield:
    """Swaps control words in values for stand-ins and back."""

    def __init__(self, tokenizer: Tokenizer, values: object):
        taken = {ord(c) for c in json.dumps(values, ensure_ascii=False, default=str) if ord(c) in _PRIVATE}
        free = (chr(code) for code in _PRIVATE if code not in taken)
        self._tokenizer = tokenizer
        self._stand_in = {word: next(free) for word in tokenizer.special_ids}
        self._back = str.maketrans({stand_in: word for word, stand_in in self._stand_in.items()})

    def cover(self, value: Any) -> Any:
        if isinstance(value, str):
            pieces = self._tokenizer.split_special(value)
            return "".join(self._stand_in[p.text] if isinstance(p, Special) else p for p in pieces)
        if isinstance(value, Mapping):
            return {self.cover(key): self.cover(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self.cover(entry) for entry in value]
        return value

    def uncover(self, text: str) -> str:
        return text.translate(self._back)
