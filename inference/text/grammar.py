"""Structured outputs: what an answer must look like, and the grammars that say which tokens may come next (llguidance)."""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ...kernels.errors import ArgumentError
from .dsml import MOST_CHARACTERS, call_grammar
from .lark import has_dead_end, json_schemas
from .schemas import NAMED, has_end, inlined, number_fault
from .tokenizer import END_THINK, Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

Result = TypeVar("Result")

KINDS = ("json", "json_object", "regex", "choice", "grammar")
# Characters of one text or pattern in it: the automaton of a literal takes about 2 µs a character to make a mask.
_LONGEST_LITERAL = 4096
_LITERALS = ("const", "enum", "pattern")  # keywords of schemas that hold texts and patterns


@dataclass(frozen=True)
class StructuredOutputsParams:
    """A constraint on the text of an answer: exactly one of the fields. Names and meanings are vLLM's."""

    json: str | Mapping[str, Any] | None = None  # a JSON schema
    json_object: bool = False  # any JSON object
    regex: str | None = None  # the whole text matches; Rust's syntax, without look-around and back-references
    choice: Sequence[str] | None = None  # one of these, kept as a tuple
    grammar: str | None = None  # Lark's or GBNF's notation, with the rule `start` or `root`
    # The constraint begins after </think>, and the answer cannot end before. LLM.chat and the server set it.
    after_thinking: bool = False

    def __post_init__(self) -> None:
        if self.choice is not None:
            if (
                isinstance(self.choice, str)
                or not self.choice
                or not all(isinstance(each, str) for each in self.choice)
            ):
                raise _wrong("choice", f"{self.choice!r:.100}", "a list of texts")
            object.__setattr__(self, "choice", tuple(self.choice))
        given = [kind for kind in KINDS if getattr(self, kind) not in (None, False)]
        if len(given) != 1:
            raise _wrong(None, ", ".join(given) or "nothing", f"one of {', '.join(KINDS)}", "has")
        for kind in ("regex", "grammar"):
            if not isinstance(getattr(self, kind), str | None):
                raise _wrong(kind, f"{getattr(self, kind)!r:.100}", "a text")
        if not isinstance(self.json, str | Mapping | None):
            raise _wrong("json", f"{self.json!r:.100}", "a JSON schema")

    def description(self) -> tuple[str, str]:
        """Return (kind, text), the key of the compiled grammar. ValueError for a schema that is not a JSON object."""
        if self.json_object:
            return "json", '{"type": "object"}'
        if self.choice is not None:
            kind, text, literals = "choice", json.dumps(self.choice), list(self.choice)
        elif self.json is not None:
            kind, text = "json", self.json if isinstance(self.json, str) else _dump(self.json)
            try:
                schema = json.loads(text)
            except (ValueError, RecursionError):
                schema = None
            literals = _literals(schema)
            if not isinstance(schema, dict):
                raise _wrong("json", f"{text[:100]!r}", "a JSON schema, which is an object")
            if not has_end(schema):
                raise _wrong("json", *_ENDLESS)
            if (fault := number_fault(schema)) is not None:
                raise _wrong("json", *fault, "holds")
        else:
            kind, text = ("regex", self.regex) if self.regex is not None else ("grammar", self.grammar or "")
            literals = [self.regex] if self.regex is not None else []
        if (longest := max(map(len, literals), default=0)) > _LONGEST_LITERAL:
            raise _wrong(kind, f"a text of {longest} characters", f"at most {_LONGEST_LITERAL}", "has")
        if len(text) > MOST_CHARACTERS:
            raise _wrong(kind, f"{len(text)} characters", f"at most {MOST_CHARACTERS}", "has")
        return kind, text


def _wrong(kind: str | None, value: str, expected: str | None, verb: str = "is") -> ArgumentError:
    return ArgumentError(f"structured_outputs.{kind}" if kind else "structured_outputs", value, expected, verb)


def check_function(function: Mapping[str, Any]) -> None:
    """Raise ArgumentError about `parameters` if no call of a function (OpenAI's shape) can be described.

    The schema may be malformed, or one that no object can have, or no finite one.
    """
    from llguidance import LLMatcher

    schema, lenient = function.get("parameters") or {}, not function.get("strict")
    if not has_end(schema):
        raise ArgumentError("parameters", *_ENDLESS)
    if (fault := number_fault(schema)) is not None:
        raise ArgumentError("parameters", *fault, "holds")
    whole = {**inlined(schema), "x-guidance": {**_JSON_STYLE, "lenient": lenient}}
    if isinstance(parts := whole.get("allOf", []), list):
        whole["allOf"] = [*parts, {"type": "object"}]
    text = _dump(whole)
    if len(text) > MOST_CHARACTERS:
        raise ArgumentError("parameters", f"{len(text)} characters", f"at most {MOST_CHARACTERS}", "has")
    for grammar in (LLMatcher.grammar_from_json_schema(text), call_grammar([function], 0)):
        if error := _with_stack(len(grammar), partial(LLMatcher.validate_grammar, grammar)):
            error = re.sub(r"^at \d+\(\d+\): ", "", _one_line(error))
            raise ArgumentError("parameters", f"compiled: {error}", "a JSON schema of objects", "cannot be")


def _dump(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise _wrong("json", f"written as JSON ({error})", "a JSON schema", "cannot be") from None


def _literals(schema: Any) -> list[str]:
    """Collect the patterns of a schema and the texts of its values."""
    found: list[str] = []
    values = [(schema, False, False)]  # (value, whether its texts are literals, whether its names are free)
    while values:
        value, is_literal, is_named = values.pop()
        if isinstance(value, str):
            found += [value] * is_literal
        elif isinstance(value, dict):
            values += [
                (each, is_literal or (not is_named and name in _LITERALS), not is_named and name in NAMED)
                for name, each in value.items()
            ]
        elif isinstance(value, list):
            values += [(each, is_literal, False) for each in value]
    return found


# Of an error about a schema: its value, what is expected instead, and the verb.
_ENDLESS = ("to itself without an end", "a schema that a finite value can have", "refers")
_KEPT = 64  # compiled grammars
_SHALLOW = 2**13  # characters, of which 300 references may be made
_STACK = 2**28  # bytes, of which the longest chains in MOST_CHARACTERS use a half
_STACK_LOCK = threading.Lock()
# The format's own style is ": " and ", ". Without a bound, a model may write white space until its tokens run out.
_JSON_STYLE: Any = {"whitespace_pattern": r"[ \n\t]{0,20}"}


class GrammarError(RuntimeError):
    """A grammar that has compiled cannot be followed any further."""


class Mask(NamedTuple):
    """The memory of a row's mask. Its address is kept, because numpy takes a third of a mask's time to tell it."""

    words: np.ndarray  # uint32 [⌈vocab / 32⌉]: a bit for each token that may come, the lowest first
    address: int  # of the words, which lie one after the other

    @classmethod
    def rows(cls, masks: np.ndarray) -> "list[Mask]":
        """Split masks uint32 [M, ⌈vocab / 32⌉] into rows, which the array must outlive."""
        first, stride = masks.ctypes.data, masks.strides[0]
        return [cls(words, first + row * stride) for row, words in enumerate(masks)]

    def holds(self, token: int) -> bool:
        return bool(self.words.item(token >> 5) >> (token & 31) & 1)


class Grammar:
    """The position of one answer in its grammar, for one thread at a time."""

    def __init__(self, matcher: "LLMatcher", vocab_size: int, end_ids: Sequence[int], begins_after: int | None) -> None:
        """begins_after: the token after which the grammar begins; until then no end token may come."""
        self._matcher = matcher
        self._begins_after = begins_after
        self._begin = 0 if begins_after is None else -1  # position in the output from which on the grammar holds
        self._searched = 0  # tokens of the output that were searched for that position in vain
        self._consumed: list[int] = []
        unended = np.full(-(-vocab_size // 32), 2**32 - 1, dtype=np.uint32)
        for token in end_ids:
            unended[token // 32] &= ~np.uint32(1 << token % 32)
        self._unended = unended  # every token but those that end the answer: the mask until the grammar begins
        self._end_ids = frozenset(end_ids)

    def write_mask(self, tokens: Sequence[int], first: int, mask: Mask, may_end: bool) -> None:
        """Write the mask of the output ``tokens[first:]``: the tokens that may follow it.

        The output continues the output of the last call, or is shorter by some tokens.
        may_end: allow end tokens where the grammar is complete and could go on. Raises GrammarError.
        """
        if not self._has_begun(tokens, first):
            mask.words[:] = self._unended
            return
        self._follow(tokens, first + self._begin)
        self._matcher.unsafe_compute_mask_ptr(mask.address, self._unended.nbytes)
        if self._matcher.is_error():
            raise GrammarError(_one_line(self._matcher.get_error()))
        if not may_end and (others := mask.words & self._unended).any():
            mask.words[:] = others

    def takes(self, tokens: Sequence[int], first: int, token: int) -> bool:
        """True only if the mask of the output ``tokens[first:]`` holds this token, in a fraction of the time of a mask.

        False decides nothing for a token that ends an answer, nor where the next bytes are certain: masks are fast there, and
        hold only the tokens with which the tokenizer would write these bytes.
        """
        if token in self._end_ids:
            return False
        if not self._has_begun(tokens, first):
            return True
        self._follow(tokens, first + self._begin)
        if self._matcher.compute_ff_bytes() or not self._matcher.try_consume_tokens([token]):
            return False
        self._consumed.append(token)  # `_follow` takes it back if it does not come
        return True

    def _has_begun(self, tokens: Sequence[int], first: int) -> bool:
        if self._begin > len(tokens) - first:  # the token after which the grammar begins has been taken back
            self._follow(tokens, len(tokens))
            self._begin, self._searched = -1, 0
        if self._begin < 0:
            for position in range(min(first + self._searched, len(tokens)), len(tokens)):
                if tokens[position] == self._begins_after:
                    self._begin = position + 1 - first
                    return True
            self._searched = len(tokens) - first
        return self._begin >= 0

    def _follow(self, tokens: Sequence[int], first: int) -> None:
        """Bring the matcher to ``tokens[first:]``."""
        consumed = self._consumed
        shared = min(len(consumed), len(tokens) - first)
        while shared and consumed[shared - 1] != tokens[first + shared - 1]:
            shared -= 1
        if shared < len(consumed):
            self._matcher.rollback(len(consumed) - shared)
            del consumed[shared:]
        for position in range(first + shared, len(tokens)):
            consumed.append(tokens[position])
            self._matcher.consume_token(tokens[position])


class GrammarCompiler:
    """Compiles constraints for one model. Any thread may call it."""

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int, end_ids: Sequence[int]) -> None:
        """vocab_size: of the model's logits. end_ids: tokens that end an answer; a grammar allows them where it is complete."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._end_ids = sorted(end_ids)
        self._lock = threading.Lock()
        self._words: LLTokenizer | None = None
        self._compiled: OrderedDict[tuple[str, str], LLMatcher] = OrderedDict()

    def compile(self, params: StructuredOutputsParams) -> Grammar:
        """Compile a grammar. ValueError in one line if it is malformed, or too large."""
        kind, text = params.description()
        tokenizer = self._tokenizer
        if tokenizer is None or not tokenizer.is_byte_level or not self._end_ids:
            raise _wrong(None, kind, "None: it needs a byte-level tokenizer and an end token", "has")
        begins_after = None
        if params.after_thinking:
            begins_after = tokenizer.special_ids.get(END_THINK)
            if begins_after is None:
                raise _wrong(None, f"after {END_THINK}", "a tokenizer that has this token", "begins")
        with self._lock:
            words = self._words = self._words or self._read(tokenizer)
            matcher = self._compiled.get((kind, text))
        if matcher is None:
            matcher = _with_stack(len(text), lambda: _compiled(words, kind, text))
        with self._lock:
            self._compiled[kind, text] = matcher
            self._compiled.move_to_end((kind, text))
            if len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
            return Grammar(matcher.deep_copy(), self._vocab_size, self._end_ids, begins_after)

    def _read(self, tokenizer: Tokenizer) -> "LLTokenizer":
        """Read the vocabulary, which takes seconds for 129,280 tokens."""
        from llguidance import LLTokenizer, TokenizerWrapper

        wrapper = TokenizerWrapper(_Words(tokenizer, self._vocab_size, self._end_ids[0]))
        return LLTokenizer(wrapper, n_vocab=self._vocab_size, eos_token=self._end_ids)


class _Words:
    """The tokens' bytes, as llguidance expects them. Only a grammar that names a control token can reach it."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_id: int) -> None:
        self._plain = tokenizer.plain
        self.eos_token_id = end_id
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(token, skip_special_tokens=False) for token in range(vocab_size)]
        self.special_token_ids = [token for token in tokenizer.special_ids.values() if token < vocab_size]

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError("expected str")  # TokenizerWrapper asks in this way whether bytes are taken
        return self._plain.encode(text, add_special_tokens=False).ids


def _compiled(words: "LLTokenizer", kind: str, text: str) -> "LLMatcher":
    """Compile a grammar. ArgumentError for one that cannot be, and for one that an answer could not complete."""
    from llguidance import LLMatcher  # imported here, because few programs use a grammar

    definition = _definition(kind, text)
    for schema in json_schemas(definition) if kind == "grammar" else ():
        if (fault := number_fault(schema)) is not None:
            raise _wrong(kind, *fault, "holds")
    matcher = LLMatcher(words, definition, log_level=0)
    if matcher.is_error():
        raise _cannot_be_compiled(kind, matcher.get_error())
    first = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    if matcher.is_error():
        raise _cannot_be_compiled(kind, "no text has this form")
    further = matcher.deep_copy()  # what is too large for llguidance shows after the first token
    further.consume_token(int(np.unpackbits(first, bitorder="little").argmax()))
    further.compute_bitmask()
    if further.is_error():
        raise _cannot_be_compiled(kind, further.get_error())
    if kind == "grammar" and has_dead_end(definition, lambda each: LLMatcher(words, each, log_level=0)):
        raise _cannot_be_compiled(kind, "a rule has no text that ends")
    return matcher


def _with_stack(size: int, work: Callable[[], Result]) -> Result:
    """Return the result of `work`, which compiles a text of this many characters.

    llguidance compiles what refers to something after that, in one recursion, in which a usual stack of 8 MiB overflows after 700
    references. That would end the process. A long text is compiled in a thread with a larger stack.
    """
    if size < _SHALLOW:
        return work()
    with ThreadPoolExecutor(1) as pool:
        with _STACK_LOCK:
            usual = threading.stack_size(_STACK)
            try:
                done = pool.submit(work)
            finally:
                threading.stack_size(usual)
        return done.result()


def _definition(kind: str, text: str) -> str:
    """Translate the grammar into llguidance's own notation."""
    import llguidance

    try:
        if kind == "json":
            return llguidance.LLMatcher.grammar_from_json_schema(text, overrides=_JSON_STYLE)
        if kind == "choice":
            # One word, which an automaton follows. As rules, more than 2,000 choices would be refused in the middle of an answer.
            texts = (json.dumps(each, ensure_ascii=False) for each in json.loads(text))
            return f"start: CHOICE\nCHOICE: {' | '.join(texts)}"
        return llguidance.grammar_from(kind, text)  # type: ignore[arg-type]
    except ValueError as error:
        raise _cannot_be_compiled(kind, str(error)) from None


def _cannot_be_compiled(kind: str, error: str) -> ArgumentError:
    return _wrong(kind, f"compiled: {_one_line(error)}", None, "cannot be")


def _one_line(error: str) -> str:
    """Keep an error's first line and, for a wrong expression, the reason, which comes after a drawing of the expression."""
    first, *rest = error.splitlines() or [""]
    reasons = [line.removeprefix("error: ") for line in rest if line.startswith("error: ")]
    return " ".join([first[:300], *reasons])
