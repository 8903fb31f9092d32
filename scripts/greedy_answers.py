"""Greedy answers of the demo checkpoint to prompts of 100 to 16K tokens, as JSON lines; and the differences of two such files.

    python scripts/greedy_answers.py write --device cpu --precision exact --gaps --out cpu.jsonl
    python scripts/greedy_answers.py write --device cuda --precision exact --out cuda.jsonl
    python scripts/greedy_answers.py compare cpu.jsonl cuda.jsonl

The same --prompts gives the same prompts: questions at the end of conversations of the test split, whose lengths are spread evenly
on a logarithmic scale. --gaps also records each token's log-probability and gap: how far its logit was ahead of the next one's.
`compare` prints the gap at the first token that differs: a small gap means that another order of summation can explain it.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.completion import Completion
from deepseek_v32.inference.llm import DEMO
from demo_model.dialogues import write
from demo_model.training.data import characters

SHORTEST, LONGEST = 100, 16384
MAX_TOKENS = 80  # the longest answers quote a sentence of about 60


def question(llm: LLM, index: int, count: int) -> tuple[list[int], str]:
    """Prompt `index` of `count`, and the answer that its conversation states."""
    # 77 shares no factor with such a count: long and short prompts alternate.
    rank = (index * 77) % count if count % 7 and count % 11 else index
    length = SHORTEST * (LONGEST / SHORTEST) ** ((rank + 0.5) / count)
    options: dict[str, Any] = {"wording": "train", "thinking": 0.0, "functions": 0.0}
    conversation = write(f"greedy {index}", length=characters(length), split="test", **options)
    number = max(n for n, turn in enumerate(conversation.turns) if turn.kind != "talk")
    return llm.chat_token_ids(conversation.messages(until=number)), conversation.turns[number].assistant


def record(index: int, prompt: list[int], expected: str, completion: Completion) -> dict[str, Any]:
    """One line of the file."""
    line = {"index": index, "prompt_tokens": len(prompt), "expected": expected.strip(), "text": completion.text.strip()}
    line["token_ids"] = completion.token_ids
    if completion.logprobs is not None:
        line["logprobs"] = [round(each.logprob, 6) for each in completion.logprobs]
        line["gaps"] = [round(each.top[0][1] - each.top[1][1], 6) for each in completion.logprobs]
    return line


def answer(arguments: argparse.Namespace) -> None:
    llm = LLM(
        arguments.model, device=arguments.device, precision=arguments.precision, backend=arguments.backend,
        max_model_len=17408, page_count=2048, decode_graphs=not arguments.no_decode_graphs,
    )  # fmt: skip
    questions = [question(llm, index, arguments.prompts) for index in range(arguments.prompts)]
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, logprobs=2 if arguments.gaps else None)
    began, correct = time.time(), 0
    with arguments.out.open("w") as file:
        for index, completion in llm.as_completed([prompt for prompt, _ in questions], params):
            line = record(index, *questions[index], completion)
            correct += line["text"] == line["expected"]
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
    lengths = sorted(len(prompt) for prompt, _ in questions)
    summary: dict[str, Any] = {
        "prompts": len(questions),
        "shortest": lengths[0],
        "longest": lengths[-1],
        "tokens": sum(lengths),
    }
    summary |= {"device": str(llm.device), "precision": llm.precision, "correct": correct}
    print(json.dumps(summary | {"seconds": round(time.time() - began, 1)}))


def compare(arguments: argparse.Namespace) -> None:
    try:
        one, other = (
            {line["index"]: line for line in map(json.loads, path.read_text().splitlines())}
            for path in (arguments.one, arguments.other)
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(
            f"{arguments.one} and {arguments.other}; expected two files that `write` made: {error}"
        ) from None
    if one.keys() != other.keys():
        raise SystemExit(
            f"{arguments.one} has {len(one)} answers and {arguments.other} has {len(other)}; expected answers to the same prompts"
        )
    equal, largest_difference, narrowest = 0, 0.0, float("inf")
    for index in sorted(one):
        a, b = one[index], other[index]
        if a["prompt_tokens"] != b["prompt_tokens"]:
            raise SystemExit(
                f"prompt {index} has {a['prompt_tokens']} tokens in one file and {b['prompt_tokens']} in the other; expected equal"
            )
        pairs = list(zip(a["token_ids"], b["token_ids"], strict=False))
        first = next((i for i, (x, y) in enumerate(pairs) if x != y), len(pairs))
        narrowest = min([narrowest, *a.get("gaps", []), *b.get("gaps", [])])
        if "logprobs" in a and "logprobs" in b:
            largest_difference = max(
                [largest_difference, *(abs(a["logprobs"][i] - b["logprobs"][i]) for i in range(first))]
            )
        if a["token_ids"] == b["token_ids"]:
            equal += 1
            continue
        gaps = [line["gaps"][first] for line in (a, b) if first < len(line.get("gaps", []))]
        print(f"prompt {index}, {a['prompt_tokens']} tokens: token {first} differs; gaps there: {gaps}")
        print(f"    {a['text']!r}\n    {b['text']!r}")
    result: dict[str, Any] = {"prompts": len(one), "equal": equal}
    if narrowest < float("inf"):
        result["narrowest_gap"] = narrowest  # logits that differ by less than half of this change no token
    if any("logprobs" in line for line in one.values()) and any("logprobs" in line for line in other.values()):
        result["largest_logprob_difference"] = round(largest_difference, 6)
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(required=True)
    writing = modes.add_parser("write", help="answer the prompts")
    writing.add_argument("--model", type=Path, default=DEMO, help="a checkpoint directory (default: the demo)")
    writing.add_argument("--device", help="cpu or cuda (default: cuda where there is a GPU)")
    writing.add_argument(
        "--precision", choices=("exact", "bf16", "fp8"), help="default: exact on a CPU, as stored on a GPU"
    )
    writing.add_argument("--backend", default="auto", help="kernels to use (default: %(default)s)")
    writing.add_argument("--no-decode-graphs", action="store_true", help="run decode steps without CUDA graphs")
    writing.add_argument("--prompts", type=int, default=200, help="number of prompts (default: %(default)s)")
    writing.add_argument("--gaps", action="store_true", help="also record log-probabilities and gaps")
    writing.add_argument("--out", type=Path, required=True, help="the file to write")
    writing.set_defaults(run=answer)
    comparing = modes.add_parser("compare", help="compare two files that `write` made")
    comparing.add_argument("one", type=Path)
    comparing.add_argument("other", type=Path)
    comparing.set_defaults(run=compare)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:  # the user can correct it
        raise SystemExit(f"greedy_answers: {error}") from None
