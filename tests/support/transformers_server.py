"""transformers' deepseek_v32 in fp32 as somebody else's server, for `serving_answers`: its own forward pass, cache and loop."""

import threading
from pathlib import Path
from typing import Any

import torch

from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.text.answer import parse_assistant
from deepseek_v32.inference.text.messages import encode_messages
from deepseek_v32.inference.text.tokenizer import Tokenizer


class Answerer:
    """Answers requests one at a time."""

    def __init__(self, model: Any, checkpoint: Path = DEMO) -> None:
        tokenizer = Tokenizer.from_directory(checkpoint)
        assert tokenizer is not None
        self.model, self.tokenizer, self.lock = model, tokenizer, threading.Lock()

    def text(self, token: int) -> str:
        return self.tokenizer.decode([token], skip_special_tokens=False)

    @torch.inference_mode()
    def generate(self, prompt: list[int], count: int) -> tuple[list[int], torch.Tensor]:
        """Greedy tokens [n] and the log-probabilities fp32 [n, vocab] at their places."""
        with self.lock:
            out = self.model.generate(
                torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=2,
                output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
        return out.sequences[0, len(prompt) :].tolist(), torch.cat(out.logits).float().log_softmax(-1)

    @torch.inference_mode()
    def score(self, prompt: list[int]) -> torch.Tensor:
        """fp32 [T - 1, vocab]: at the place of every token after the first."""
        with self.lock:
            logits: torch.Tensor = self.model(torch.tensor([prompt])).logits[0, :-1].float()
        return logits.log_softmax(-1)

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = body["prompt"]
        tokens, logprobs = self.generate(prompt, body["max_tokens"])
        if body.get("echo"):
            tokens, logprobs = [*prompt[1:], *tokens], torch.cat([self.score(prompt), logprobs])
        block: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": []}
        if body.get("echo"):
            block = {"tokens": [self.text(prompt[0])], "token_logprobs": [None], "top_logprobs": [None]}
        for token, row in zip(tokens, logprobs, strict=True):
            block["tokens"].append(self.text(token))
            block["token_logprobs"].append(float(row[token]))
            values, ids = row.topk(5)
            block["top_logprobs"].append({self.text(int(i)): float(v) for i, v in zip(ids, values, strict=True)})
        choice = {"index": 0, "text": self.tokenizer.decode(tokens), "logprobs": block, "finish_reason": "length"}
        return {"choices": [choice], "usage": {"prompt_tokens": len(prompt)}}

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        thinking, tools = bool(body.get("chat_template_kwargs", {}).get("thinking")), body.get("tools")
        prompt = encode_messages(body["messages"], self.tokenizer, thinking, tools)
        tokens, logprobs = self.generate(prompt, body["max_tokens"])
        text = self.tokenizer.decode([token for token in tokens if token != 1], skip_special_tokens=False)
        answer = parse_assistant(text, thinking, tools)
        content = []
        for token, row in zip(tokens, logprobs, strict=True):
            values, ids = row.topk(5)
            top = [{"token": self.text(int(i)), "logprob": float(v)} for i, v in zip(ids, values, strict=True)]
            content.append({"token": self.text(token), "logprob": float(row[token]), "top_logprobs": top})
        choice = {"index": 0, "message": answer.to_message(), "logprobs": {"content": content}, "finish_reason": "stop"}
        return {"choices": [choice], "usage": {"prompt_tokens": len(prompt)}}
