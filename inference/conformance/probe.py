"""Asks a server the probe's questions. verdict.py says what its answers mean."""

import contextlib
import http.client
import json
import math
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ..text.token_bytes import BYTES
from .golden import Item, Reply

SPACE = "Ġ"  # the character of a space


def prompt_tokens_of(reply: dict[str, Any]) -> int | None:
    usage = reply.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


_Lists = tuple[tuple[str, ...], tuple[float, ...], tuple[Mapping[str, float], ...]]


def logprobs_of(block: Any) -> _Lists:
    """Tokens, log-probabilities and the likeliest ones of `logprobs`: one list in a chat, several in plain completions."""
    if not isinstance(block, dict):
        return (), (), ()
    if not isinstance(block.get("tokens"), list):
        return _one_list(block.get("content"))
    tokens = tuple(str(token) for token in block["tokens"])
    logprobs = tuple(_number(value) for value in block.get("token_logprobs") or ())
    tops = block.get("top_logprobs") or [None] * len(tokens)
    top = tuple({str(t): _number(p) for t, p in each.items()} if isinstance(each, dict) else {} for each in tops)
    return (tokens, logprobs, top) if len(tokens) == len(logprobs) == len(top) else ((), (), ())


def _one_list(entries: Any) -> _Lists:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return (), (), ()
    tokens = [str(entry.get("token")) for entry in entries]
    logprobs = tuple(_number(entry.get("logprob")) for entry in entries)
    tops = [[each for each in entry.get("top_logprobs") or () if isinstance(each, dict)] for entry in entries]
    top = [{str(t.get("token")): _number(t.get("logprob")) for t in each} for each in tops]
    if any(token.startswith(SPACE) for token in (*tokens, *(name for each in top for name in each))):
        # mlx-lm gives the tokenizer's own spelling of tokens, and calls any of the likeliest the answer's.
        top = [{_from_bytes(name): value for name, value in each.items()} for each in top]
        tokens = [
            max(each, key=each.__getitem__, default=_from_bytes(token)) for token, each in zip(tokens, top, strict=True)
        ]
        logprobs = tuple(max(each.values(), default=logprob) for logprob, each in zip(logprobs, top, strict=True))
    return tuple(tokens), logprobs, tuple(top)


def _from_bytes(token: str) -> str:
    """Read a token in the spelling of byte-level tokenizers, which have a printable character for each byte."""
    with contextlib.suppress(KeyError, UnicodeDecodeError):
        return bytes(BYTES[character] for character in token).decode()
    return token


def calls_of(calls: Any) -> str:
    """Write calls so that equal calls give equal texts, whatever their ids and the spacing of their arguments."""
    found = []
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments")
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        found.append([function.get("name"), arguments])
    return json.dumps(found, sort_keys=True) if found else ""


TOP = 5  # alternatives to each token; the most that OpenAI's completions allow
LARGEST_REPLY = 64 << 20  # bytes
_NO_SCORES = "the server scores no prompts"


class ProbeError(ValueError):
    """The server cannot be asked. The message is one line that says why."""


class Refused(Exception):
    """The server has answered a request with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"status {status}: {message}")
        self.status = status


class Client:
    """One server, one model. Any thread may call its methods."""

    def __init__(self, base_url: str, model: str | None = None, key: str | None = None, timeout: float = 120.0) -> None:
        """base_url: as OpenAI's clients take it, usually ending in /v1. model: None: the first that the server lists.

        timeout: seconds that one answer may take. ProbeError for another kind of address and for a server that is not there.
        """
        if not base_url.startswith(("http://", "https://")):
            expected = "an address that begins with http:// or https://"
            raise ProbeError(f"--base-url is {base_url!r:.200}; expected {expected}")
        self.base_url = base_url.rstrip("/")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._timeout = timeout
        self._says_thinking = True  # until a server refuses to be told
        if not model:
            listing = f"{self.base_url}/models"
            try:
                model = str(self._ask("/models", None)["data"][0]["id"])
            except Refused as error:
                raise ProbeError(f"{listing} answers {error}; expected a list of models, or --model NAME") from None
            except (TypeError, LookupError):
                raise ProbeError(f"{listing} lists no model; expected one, or --model NAME") from None
        self.model = model

    def score(self, token_ids: Sequence[int]) -> Reply:
        """Ask for log p of every token given the earlier ones. Refused, or a reply without log-probabilities, if not served."""
        body = {"prompt": list(token_ids), "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        reply = self._completion(body)
        count = len(token_ids)
        lists = (reply.tokens[1:count], reply.logprobs[1:count], reply.top[1:count])
        return Reply(*lists, None, prompt_tokens=reply.prompt_tokens)

    def complete(self, token_ids: Sequence[int], max_tokens: int, with_logprobs: bool = True) -> Reply:
        """Ask for the greedy continuation of a prompt of token ids."""
        body: dict[str, Any] = {"prompt": list(token_ids), "max_tokens": max_tokens, "temperature": 0}
        return self._completion(body | ({"logprobs": TOP} if with_logprobs else {}))

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        max_tokens: int,
        thinking: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        with_logprobs: bool = True,
    ) -> Reply:
        """Ask for the greedy answer to a conversation."""
        body: dict[str, Any] = {"messages": list(messages), "max_tokens": max_tokens, "temperature": 0}
        if with_logprobs:
            body |= {"logprobs": True, "top_logprobs": TOP}
        if tools:
            body["tools"] = list(tools)
        reply = None
        if self._says_thinking:  # engines disagree about the name of the switch
            told = {"chat_template_kwargs": {"thinking": thinking, "enable_thinking": thinking}}
            with contextlib.suppress(Refused):
                reply = self._post("/chat/completions", body | told)
        if reply is None:
            reply = self._post("/chat/completions", body)
            self._says_thinking = False
        choice = _first_choice(reply)
        message = choice.get("message") or {}
        tokens, logprobs, top = logprobs_of(choice.get("logprobs"))
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        texts = (message.get("content") or "").strip(), (reasoning or "").strip(), calls_of(message.get("tool_calls"))
        return Reply(tokens, logprobs, top, *texts, prompt_tokens_of(reply))

    def _completion(self, body: dict[str, Any]) -> Reply:
        reply = self._post("/completions", body)
        choice = _first_choice(reply)
        tokens, logprobs, top = logprobs_of(choice.get("logprobs"))
        return Reply(tokens, logprobs, top, (choice.get("text") or "").strip(), prompt_tokens=prompt_tokens_of(reply))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._ask(path, {"model": self.model, **body})

    def _ask(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        address = self.base_url + path
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(address, data, self._headers)
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                content = response.read(LARGEST_REPLY)
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, _message(error.read(1 << 16))) from None
        except TimeoutError:
            problem = f"has not answered within {self._timeout:g} seconds; expected an answer"
            raise ProbeError(f"{address} {problem}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = " ".join(str(getattr(error, "reason", None) or error).split()) or type(error).__name__
            raise ProbeError(f"{address} cannot be asked: {reason:.200}") from None
        try:
            parsed = json.loads(content)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise ProbeError(f"{address} answers {content[:60]!r}; expected a JSON object")
        return parsed


def _message(content: bytes) -> str:
    text = content.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        error = found.get("error", found)
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError, RecursionError):
        pass
    return " ".join(text.split())[:300]


def _first_choice(reply: dict[str, Any]) -> dict[str, Any]:
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ProbeError(f"the server answers {json.dumps(reply)[:100]}; expected a field choices that holds an answer")
    return choices[0]


Progress = Callable[[str], None]


@dataclass
class Observation:
    """The answers of a server."""

    model: str
    replies: dict[str, Reply] = field(default_factory=dict)  # by item
    refusals: dict[str, str] = field(default_factory=dict)  # by item that got no answer: the server's reason
    takes_token_ids: bool = True
    scores_prompts: bool = True
    gives_logprobs: bool = True
    repeats: bool | None = None  # whether the same greedy request got the same answer, bit for bit; None: not known


class Probe:
    """Asks the items one after the other, and the group `batch` all at once."""

    def __init__(self, client: Client, progress: Progress = lambda name: None) -> None:
        self.client = client
        self.progress = progress
        self.seen = Observation(client.model)

    def run(self, items: Iterable[Item]) -> Observation:
        """Ask all items. ProbeError if the server stops answering, or answers no question at all."""
        items = list(items)
        self._find_out(next((item for item in items if item.group in ("decode", "reuse")), None))
        together = [item for item in items if item.group == "batch"]
        answers = [(item, self._ask(item)) for item in items if item.group != "batch"]
        if together:
            with ThreadPoolExecutor(len(together) + 1) as pool:
                # One of them twice: a server whose bits depend on the batch may answer its twins differently.
                asked = [(item, pool.submit(self._ask, item)) for item in (*together, together[0])]
                *batch, (_, twin) = [(item, future.result()) for item, future in asked]
            answers += batch
            if isinstance(one := batch[0][1], Reply) and isinstance(twin, Reply):
                self.seen.repeats = [one.text, one.logprobs] == [twin.text, twin.logprobs]
        for item, answer in answers:
            if isinstance(answer, str):
                self.seen.refusals[item.name] = answer
            else:
                self.seen.replies[item.name] = answer
        if not self.seen.replies:
            # The server's own words come first.
            reasons = sorted(self.seen.refusals.values(), key=lambda reason: reason == _NO_SCORES)
            reason = next(iter(reasons), "there is nothing to ask")
            raise ProbeError(f"the server has answered no question; expected answers, but got {reason}")
        self.seen.scores_prompts &= any(
            self.seen.replies[item.name].logprobs
            for item in items
            if item.group == "score" and item.name in self.seen.replies
        )
        return self.seen

    def _find_out(self, item: Item | None) -> None:
        """Learn what the server takes and gives from one short prompt, with which no item begins."""
        if item is None:
            return
        short = item.tokens[1:9]
        try:
            reply = self.client.complete(short, 1)
            self.seen.gives_logprobs = bool(reply.logprobs)
            self.seen.takes_token_ids = reply.prompt_tokens is None or abs(reply.prompt_tokens - len(short)) <= 1
        except Refused:
            try:
                self.client.complete(short, 1, with_logprobs=False)
                self.seen.gives_logprobs = False
            except Refused:
                self.seen.takes_token_ids = False
        if not self.seen.takes_token_ids:
            self.seen.scores_prompts = False
            try:
                reply = self.client.chat([{"role": "user", "content": "Hi"}], 1)
                self.seen.gives_logprobs = bool(reply.logprobs)
            except Refused:
                self.seen.gives_logprobs = False

    def _ask(self, item: Item) -> Reply | str:
        """Return the reply, or the reason why there is none."""
        self.progress(item.name)
        seen, client = self.seen, self.client
        try:
            if item.group == "score":
                return client.score(item.tokens) if seen.scores_prompts else _NO_SCORES
            if seen.takes_token_ids and item.group != "chat":
                return client.complete(item.tokens, item.max_tokens, seen.gives_logprobs)
            return client.chat(item.messages, item.max_tokens, item.thinking, item.tools, seen.gives_logprobs)
        except Refused as error:
            return str(error)


def observation_json(seen: Observation) -> str:
    return json.dumps(vars(seen), default=vars, ensure_ascii=False)
