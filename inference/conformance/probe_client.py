"""What the probe asks of a server: OpenAI's API in the dialects of vLLM, SGLang, llama.cpp, mlx-lm, transformers and ours."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from .probe_reply import Reply, calls_of, logprobs_of, prompt_tokens_of

TOP = 5  # alternatives asked for beside each token; the most that OpenAI's completions allow
LARGEST_REPLY = 64 << 20  # bytes


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
            raise ProbeError(
                f"--base-url is {base_url!r:.200}; expected an address that begins with http:// or https://"
            )
        self.base_url = base_url.rstrip("/")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._timeout = timeout
        self._says_thinking = True  # until a server refuses to be told
        self.model = model or self._first_model()

    def score(self, token_ids: Sequence[int]) -> Reply:
        """log p of every token after the first, given those before it. Refused, or no log-probabilities, if that is not served."""
        body = {"prompt": list(token_ids), "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        reply = self._completion(body)
        count = len(token_ids)
        return Reply(
            reply.tokens[1:count], reply.logprobs[1:count], reply.top[1:count], None, prompt_tokens=reply.prompt_tokens
        )

    def complete(self, token_ids: Sequence[int], max_tokens: int, with_logprobs: bool = True) -> Reply:
        """The greedy continuation of a prompt of token ids."""
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
        """The greedy answer to a conversation."""
        body: dict[str, Any] = {"messages": list(messages), "max_tokens": max_tokens, "temperature": 0}
        if with_logprobs:
            body |= {"logprobs": True, "top_logprobs": TOP}
        if tools:
            body["tools"] = list(tools)
        reply = self._chat(body, thinking)
        choice = _first_choice(reply)
        message = choice.get("message") or {}
        tokens, logprobs, top = logprobs_of(choice.get("logprobs"))
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        return Reply(
            tokens,
            logprobs,
            top,
            (message.get("content") or "").strip(),
            (reasoning or "").strip(),
            calls_of(message.get("tool_calls")),
            prompt_tokens_of(reply),
        )

    def _chat(self, body: Mapping[str, Any], thinking: bool) -> dict[str, Any]:
        """The reply of a server that is told whether to think, if it lets itself be told: engines think or do not by themselves."""
        plain = dict(body)
        if not self._says_thinking:
            return self._post("/chat/completions", plain)
        told = {
            "chat_template_kwargs": {"thinking": thinking, "enable_thinking": thinking}
        }  # engines disagree about the name
        try:
            return self._post("/chat/completions", plain | told)
        except Refused:
            reply = self._post("/chat/completions", plain)
            self._says_thinking = False
            return reply

    def _completion(self, body: dict[str, Any]) -> Reply:
        reply = self._post("/completions", body)
        choice = _first_choice(reply)
        tokens, logprobs, top = logprobs_of(choice.get("logprobs"))
        return Reply(tokens, logprobs, top, (choice.get("text") or "").strip(), prompt_tokens=prompt_tokens_of(reply))

    def _first_model(self) -> str:
        try:
            listed = self._ask("/models", None).get("data")
            return str(listed[0]["id"])  # type: ignore[index]
        except Refused as error:
            raise ProbeError(
                f"{self.base_url}/models answers {error}; expected a list of models, or --model NAME"
            ) from None
        except (TypeError, LookupError):
            raise ProbeError(f"{self.base_url}/models lists no model; expected one, or --model NAME") from None

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
            raise ProbeError(
                f"{address} has not answered within {self._timeout:g} seconds; expected an answer"
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise ProbeError(
                f"{address} cannot be asked: {' '.join(str(reason).split()) or type(error).__name__:.200}"
            ) from None
        try:
            parsed = json.loads(content)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise ProbeError(f"{address} answers {content[:60]!r}; expected a JSON object")
        return parsed


def _message(content: bytes) -> str:
    """The error message of a reply, in one line."""
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
