"""The demo of `make demo`: a fact stated long ago, a question, the streamed answer, and the passage that DSA read for it.

Usage: python scripts/demo.py [--seed N] [--length CHARACTERS]
"""

import argparse
import sys
import time

import numpy as np
import torch

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.commands.terminal import dim, statistics
from deepseek_v32.inference.params import TokenSelection
from deepseek_v32.inference.text.token_texts import token_texts
from deepseek_v32.model.demo.conversations import Conversation, write

PASSAGE = 24  # tokens; about one sentence
BEST = 16  # positions used of those selected for one token of the answer


def conversation_with_a_hidden_fact(seed: int, length: int) -> Conversation:
    """A conversation with names that training never used, whose last question asks for a fact stated early."""
    for attempt in range(seed, seed + 1000):
        conversation = write(
            attempt, length=length, split="test", wording="train", questions=1, unanswerable=0.0, prefer_updated=0.0
        )
        last = conversation.turns[-1]
        if last.kind == "stated" and last.distance > length * 0.6 and last.user.endswith("?") and len(last.user) < 90:
            return conversation
    raise SystemExit(f"--length is {length}; expected more characters: no such conversation asks for an early fact")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=120, help="which conversation")
    parser.add_argument("--length", type=int, default=6000, help="characters; a page has about 3,000")
    arguments = parser.parse_args()

    started = time.perf_counter()
    llm = LLM()
    conversation = conversation_with_a_hidden_fact(arguments.seed, arguments.length)
    *_, question = conversation.turns
    messages = conversation.messages(until=len(conversation.turns) - 1)  # the question is the last message
    tokens = llm.chat_token_ids(messages)
    assert llm.tokenizer is not None
    question_start = len(tokens) - len(llm.tokenizer.encode(question.user)) - 4  # 4 control tokens
    assert isinstance(llm.model, torch.nn.Module)
    parameters = sum(parameter.numel() for parameter in llm.model.parameters()) / 1e6
    print(
        f"A {parameters:.1f} M-parameter DeepSeek-V3.2 on the {llm.device}, ready after {time.perf_counter() - started:.1f} s."
    )
    print(
        f"It reads a chat of {len(tokens):,} tokens, in which every query attends to {llm.config.index_topk} of them:\n"
    )
    first = next(message["content"] for message in messages if message["role"] == "user")
    print(dim(f"    {' '.join(first.split())[:300]} …", sys.stdout))
    print(f"\n>>> {question.user}")
    selections = []
    completion = None
    for delta in llm.stream(tokens, SamplingParams(temperature=0, max_tokens=60), inspect=True):
        print(delta.text, end="", flush=True)
        if delta.selection is not None:
            selections.append(delta.selection)
        completion = delta.completion or completion
    assert completion is not None
    layer = llm.config.num_hidden_layers - 1
    start, stop = best_scored_passage(selections, layer, question_start)
    passage = "".join(token_texts(tokens[start:stop], llm.tokenizer))
    print(f"\n\n{statistics(completion)}")
    print(f"\nWhat the indexer of layer {layer} scored highest, {len(tokens) - start:,} tokens back:")
    print(f"\n    … {' '.join(passage.split())} …\n")


if __name__ == "__main__":
    main()
