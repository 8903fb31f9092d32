"""How the prompts of one run of the command line become requests."""

from dataclasses import replace
from typing import TYPE_CHECKING

from .prompt_file import Prompt

if TYPE_CHECKING:
    from ..llm import LLM
    from ..params import SamplingParams


class Asking:
    """What the command line says about every prompt; a prompt of a file may say otherwise."""

    def __init__(self, params: "SamplingParams", thinking: bool, system: str | None, raw: bool):
        self._params = params
        self._thinking = thinking
        self._system = system
        self._raw = raw

    def thinks(self, prompt: Prompt) -> bool:
        """Whether the answer starts with reasoning."""
        if self._raw or prompt.source == "token_ids":
            return False
        return self._thinking if prompt.thinking is None else bool(prompt.thinking)

    def request(self, llm: "LLM", prompt: Prompt) -> "tuple[list[int], SamplingParams]":
        """Token ids and sampling parameters. ValueError for what cannot be asked."""
        params = replace(self._params, **(prompt.sampling or {}))
        if prompt.source == "token_ids":
            return prompt.content, params
        if self._raw and prompt.source == "prompt":
            assert llm.tokenizer is not None
            return llm.tokenizer.encode_prompt(prompt.content, parse_special=True), params
        messages = prompt.content
        if prompt.source == "prompt":
            messages = [{"role": "user", "content": prompt.content}]
        if self._system is not None and not any(message["role"] == "system" for message in messages):
            messages = [{"role": "system", "content": self._system}, *messages]
        return llm.chat_token_ids(messages, thinking=self.thinks(prompt), tools=prompt.tools), params
