"""Greedy answers of the demo checkpoint to prompts of 100 to 16K tokens, as JSON lines; and where two such files differ.

    python scripts/greedy_answers.py write --device cpu --precision exact --gaps --out cpu.jsonl
    python scripts/greedy_answers.py write --device cuda --precision exact --out cuda.jsonl
    python scripts/greedy_answers.py compare cpu.jsonl cuda.jsonl

Prompts are the same for the same --prompts: questions at the end of conversations of the test split, lengths spread evenly in
their logarithm. `--gaps` also records, for every token, how far its logit was ahead of the next best, and its log-probability:
`compare` shows the gap at the first token that differs, which says whether a sum in another order can have turned it.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from training.data import characters  # type: ignore[import-not-found]

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.llm import DEMO
from deepseek_v32.inference.params import Completion
from deepseek_v32.model.demo.conversations import write

SHORTEST, LONGEST = 100, 16384
MAX_TOKENS = 40  # the longest answers have about 30


def question(llm: LLM, index: int, count: int) -> tuple[list[int], str]:
    """Prompt `index` of `count`, and the answer that its conversation holds."""
    place = (index * 77) % count if count % 7 and count % 11 else index  # 77 shares no factor: long among short ones
    length = SHORTEST * (LONGEST / SHORTEST) ** ((place + 0.5) / count)
    talk = write(f"greedy {index}", length=characters(length), split="test", wording="train")
    number = max(n for n, turn in enumerate(talk.turns) if turn.kind != "talk")
    return llm.chat_token_ids(talk.messages(until=number)), talk.turns[number].assistant


def record(index: int, prompt: list[int], wanted: str, said: Completion) -> dict[str, Any]:
    """One line of the file."""
    line = {"index": index, "prompt_tokens": len(prompt), "wanted": wanted.strip(), "text": said.text.strip()}
    line["token_ids"] = said.token_ids
    if said.logprobs is not None:
        line["logprobs"] = [round(each.logprob, 6) for each in said.logprobs]
        line["gaps"] = [round(each.top[0][1] - each.top[1][1], 6) for each in said.logprobs]
    return line


def answer(arguments: argparse.Namespace) -> None:
    llm = LLM(
        arguments.model, device=arguments.device, precision=arguments.precision, backend=arguments.backend,
        max_model_len=17408, page_count=2048, decode_graphs=not arguments.no_decode_graphs,
    )  # fmt: skip
    asked = [question(llm, index, arguments.prompts) for index in range(arguments.prompts)]
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, logprobs=2 if arguments.gaps else None)
    began, right = time.time(), 0
    with arguments.out.open("w") as file:
        for index, said in llm.as_completed([prompt for prompt, _ in asked], params):
            line = record(index, *asked[index], said)
            right += line["text"] == line["wanted"]
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
    lengths = sorted(len(prompt) for prompt, _ in asked)
    summary: dict[str, Any] = {
        "prompts": len(asked),
        "shortest": lengths[0],
        "longest": lengths[-1],
        "tokens": sum(lengths),
    }
    summary |= {"device": str(llm.device), "precision": llm.precision, "right": right}
    print(json.dumps(summary | {"seconds": round(time.time() - began, 1)}))


def compare(arguments: argparse.Namespace) -> None:
    try:
        one, other = (
            {line["index"]: line for line in map(json.loads, path.read_text().splitlines())}
            for path in (arguments.one, arguments.other)
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"two files that `write` made are wanted: {error}") from None
    if one.keys() != other.keys():
        raise SystemExit(
            f"{arguments.one} has {len(one)} answers and {arguments.other} {len(other)}, or to other prompts"
        )
    equal, apart, narrowest = 0, 0.0, float("inf")
    for index in sorted(one):
        a, b = one[index], other[index]
        if a["prompt_tokens"] != b["prompt_tokens"]:
            raise SystemExit(
                f"prompt {index} has {a['prompt_tokens']} tokens in one file, {b['prompt_tokens']} in the other"
            )
        pairs = list(zip(a["token_ids"], b["token_ids"], strict=False))
        first = next((i for i, (x, y) in enumerate(pairs) if x != y), len(pairs))
        narrowest = min([narrowest, *a.get("gaps", []), *b.get("gaps", [])])
        if "logprobs" in a and "logprobs" in b:
            apart = max([apart, *(abs(a["logprobs"][i] - b["logprobs"][i]) for i in range(first))])
        if a["token_ids"] == b["token_ids"]:
            equal += 1
            continue
        gaps = [line["gaps"][first] for line in (a, b) if first < len(line.get("gaps", []))]
        print(f"prompt {index}, {a['prompt_tokens']} tokens: token {first} differs; gap of the logits there {gaps}")
        print(f"    {a['text']!r}\n    {b['text']!r}")
    result: dict[str, Any] = {"prompts": len(one), "equal": equal}
    if narrowest < float("inf"):
        result["narrowest_gap"] = narrowest  # of all tokens: sums that differ by less than half of it turn none
    if any("logprobs" in line for line in one.values()) and any("logprobs" in line for line in other.values()):
        result["largest_logprob_difference"] = round(apart, 6)
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(required=True)
    writing = modes.add_parser("write", help="answer the prompts")
    writing.add_argument("--model", type=Path, default=DEMO)
    writing.add_argument("--device", default=None)
    writing.add_argument("--precision", default=None, choices=("exact", "bf16", "fp8"))
    writing.add_argument("--backend", default="auto")
    writing.add_argument("--no-decode-graphs", action="store_true")
    writing.add_argument("--prompts", type=int, default=200)
    writing.add_argument("--gaps", action="store_true", help="record log-probabilities and gaps")
    writing.add_argument("--out", type=Path, required=True)
    writing.set_defaults(run=answer)
    comparing = modes.add_parser("compare", help="two files that `write` made")
    comparing.add_argument("one", type=Path)
    comparing.add_argument("other", type=Path)
    comparing.set_defaults(run=compare)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:  # what whoever started this can mend
        raise SystemExit(f"greedy_answers: {error}") from None
