"""The demo of `make demo`: a long chat, questions about it, and the passage that DSA read for the first answer.

Usage: python scripts/demo.py
"""

import sys
import time
from typing import Any

import numpy as np
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.commands.terminal import dim, show_stream, statistics
from deepseek_v32.inference.completion import Completion
from deepseek_v32.inference.text.answer import AssistantMessage
from deepseek_v32.inference.text.detokenizer import token_texts
from deepseek_v32.inference.token_selection import TokenSelection
from deepseek_v32.model.demo.sample_chats import CALLS, MOVING, QUESTIONS, WEATHER, messages

PASSAGE = 24  # tokens; about one sentence
BEST = 16  # positions used of those selected for one token of the answer
GREEDY = SamplingParams(temperature=0, max_tokens=160)


def best_scored_passage(selections: list[TokenSelection], layer: int, end: int) -> tuple[int, int]:
    """Tokens [start, stop) before `end` that the indexer of `layer` scored highest during the answer."""
    strength = np.zeros(end)
    for selection in selections:
        positions, scores = selection.layers[layer], selection.scores[layer]
        # For every word of the answer a few tokens stand out; the others only fill the index_topk.
        best = np.argsort(-scores)[:BEST]
        best = best[positions[best] < end]
        strength[positions[best]] += scores[best] / scores.max()
    strength[:4] = 0  # every query attends to the beginning
    start = int(np.convolve(strength, np.ones(PASSAGE), "valid").argmax())
    return start, start + PASSAGE


def ask(
    llm: LLM, chat: list[dict[str, Any]], thinking: bool = False, tools: list[dict[str, Any]] | None = None
) -> tuple[AssistantMessage, Completion, list[int]]:
    """Print the last message of the chat and its answer, thoughts in grey, and add the answer to the chat."""
    if chat[-1]["role"] == "user":
        print(f">>> {chat[-1]['content']}")
    tokens = llm.chat_token_ids(chat, thinking, tools)
    answer, completion = show_stream(llm, tokens, GREEDY, thinking, sys.stdout, inspect=True)
    print()
    chat.append(answer.to_message())
    return answer, completion, tokens


def show_passage(llm: LLM, completion: Completion, tokens: list[int], question: str) -> None:
    """What the indexer of the last layer scored highest, far from the question."""
    assert llm.tokenizer is not None and completion.selection is not None
    layer = llm.config.num_hidden_layers - 1
    before = len(tokens) - len(llm.tokenizer.encode(question)) - 3  # control tokens around the question
    start, stop = best_scored_passage(completion.selection, layer, before)
    passage = "".join(token_texts(tokens[start:stop], llm.tokenizer))
    print(dim(f"    {statistics(completion)}", sys.stdout))
    print(f"    What the indexer of layer {layer} scored highest, {len(tokens) - start:,} tokens back:")
    print(f"\n    … {' '.join(passage.split())} …\n")


def main() -> None:
    started = time.perf_counter()
    llm = LLM()
    assert isinstance(llm.model, torch.nn.Module)
    parameters = sum(parameter.numel() for parameter in llm.model.parameters()) / 1e6
    chat = messages(MOVING)
    count = len(llm.chat_token_ids([*chat, {"role": "user", "content": QUESTIONS[0][0]}]))
    print(
        f"A {parameters:.1f} M-parameter DeepSeek-V3.2 on the {llm.device}, ready after {time.perf_counter() - started:.1f} s.\n"
        f"It reads a chat of {count:,} tokens, in which every query attends to {llm.config.index_topk} of them:\n"
    )
    for text, _ in MOVING:
        shown = " ".join(text.split())
        print(dim(f"    {shown if len(shown) < 100 else f'{shown[:100]} …'}", sys.stdout))
    print()
    for number, (question, thinking) in enumerate(QUESTIONS):
        if thinking:
            print("Two facts are needed now, so it thinks first:\n")
        chat.append({"role": "user", "content": question})
        _, completion, tokens = ask(llm, chat, thinking)
        if number == 0:
            show_passage(llm, completion, tokens, question)
    print("With a function that it may call:\n")
    chat = [{"role": "user", "content": CALLS}]
    answer, _, _ = ask(llm, chat, tools=[WEATHER])
    for number, _ in enumerate(answer.tool_calls):
        result = f"{18 - 7 * number} degrees and {'cloudy' if number else 'sunny'}"
        chat.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result})
        print(dim(f"    the function returns: {result}", sys.stdout))
    if answer.tool_calls:
        print()
        ask(llm, chat, tools=[WEATHER])
    print("It knows what a chat tells it, and nothing else. Tell it something in plain sentences, then ask.")


if __name__ == "__main__":
    main()
