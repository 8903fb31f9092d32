"""How the prompts of one run of a command become token ids and sampling parameters."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .prompt_file import Prompt

if TYPE_CHECKING:
    from ..llm import LLM
    from ..params import SamplingParams


class PromptEncoder:
    """Applies the command line's settings to every prompt; a prompt from a file may replace some of them."""

    def __init__(
        self,
        params: "Callable[[SamplingParams], SamplingParams]",
        thinking: bool,
        system: str | None,
        raw: bool,
        tools: list[dict[str, Any]] | None = None,
    ) -> None:
        self._params = params  # of the checkpoint's defaults
        self._thinking = thinking
        self._system = system
        self._raw = raw
        self._tools = tools

    def is_thinking(self, prompt: Prompt) -> bool:
        """Whether the answer begins with the model's reasoning."""
        if self._raw or prompt.source == "token_ids":
            return False
        return self._thinking if prompt.thinking is None else bool(prompt.thinking)

    def tools(self, prompt: Prompt) -> list[dict[str, Any]] | None:
        """The functions that the answer may call."""
        return self._tools if prompt.tools is None else prompt.tools

    def encode(self, llm: "LLM", prompt: Prompt) -> "tuple[list[int], SamplingParams]":
        """Token ids and sampling parameters of a prompt. ValueError for a prompt that cannot be encoded."""
        params = replace(self._params(llm.default_params), **(prompt.sampling or {}))
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
        return llm.chat_token_ids(messages, thinking=self.is_thinking(prompt), tools=self.tools(prompt)), params
