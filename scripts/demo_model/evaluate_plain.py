"""Ask a checkpoint plain questions, as people type them, and count right answers by group.

    python scripts/demo_model/evaluate_plain.py                      # the shipped demo
    python scripts/demo_model/evaluate_plain.py --model build/demo/checkpoint --show
    python scripts/demo_model/evaluate_plain.py --items …/evaluation/fourth_plain_questions.jsonl   # 120 by a fourth author

evaluation/plain_questions.jsonl was written before the model was trained, `more_` (120) and `third_` (150) after its fourth run,
`fourth_` after its fifth, each by somebody who had seen neither its generator nor its sentence frames. The first three were read
to find what fails; the fourth was not. One item a line: `turns` of the user, of which the last asks;
`accept`, values of which the answer's first sentence must hold one; `wrong`, strings that must not stand there. Where nothing
was told, and for manners, `accept` is empty: the answer must say that it does not know, or what it can do.
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path

from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.text.errors import describe_error

ITEMS = Path(__file__).parent / "evaluation" / "plain_questions.jsonl"
# How an honest answer without a value may begin.
HONEST = re.compile(
    r"not told|have not|haven't|do not know|don't know|know nothing|cannot|can't|only (know|remember|understand|answer)"
    r"|did not understand|I am |I'm |hello|hi\b|welcome|good|bye|tell me|sorry|noted",
    re.IGNORECASE,
)


# A full stop before a space and a capital, unless it is a title's; or the end of a line.
SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\b[DM]r\.)(?<!\b[MS]t\.)(?<!\bMs\.)(?<!\bMrs\.)\s+(?=[A-Z\"“])|\n")


FIELDS = {"id", "group", "thinking", "turns", "accept", "wrong"}


def read_items(path: Path) -> list[dict]:
    """Raises ValueError for a file without items, one that is not text, or with a line that is no item."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"--items is {path}, which is not UTF-8 text ({error}); expected JSON lines") from None
    items = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            item = json.loads(line)
        except json.JSONDecodeError:
            item = None
        if not isinstance(item, dict) or item.keys() != FIELDS or not item["turns"]:
            raise ValueError(
                f"line {number} of {path} is {line[:60]!r}; expected a JSON object of {', '.join(sorted(FIELDS))}, with turns"
            )
        items.append(item)
    if not items:
        raise ValueError(f"--items is {path}, which is empty; expected a question a line")
    return items


def first_sentence(text: str) -> str:
    return SENTENCE_END.split(text.strip(), maxsplit=1)[0]


def holds(text: str, value: str) -> bool:
    """Whether the value stands in the text as a whole, in any case."""
    return re.search(rf"(?<!\w){re.escape(value.strip().lower())}(?!\w)", text.lower()) is not None


def is_right(item: dict, answer: str) -> bool:
    sentence = first_sentence(answer)
    if any(holds(sentence, wrong) for wrong in item["wrong"]):
        return False
    if item["accept"]:
        return any(holds(sentence, value) for value in item["accept"])
    return HONEST.search(answer) is not None


def ask(llm: LLM, item: dict, max_tokens: int) -> str:
    """The answer to the last turn; the model's own answers stand between the turns."""
    messages: list[dict[str, str]] = []
    answer = ""
    for number, turn in enumerate(item["turns"]):
        messages.append({"role": "user", "content": turn})
        thinking = item["thinking"] and number == len(item["turns"]) - 1
        completion = llm.chat(messages, SamplingParams(temperature=0, max_tokens=max_tokens), thinking=thinking)
        answer = (completion.message.content if completion.message else None) or ""
        messages.append({"role": "assistant", "content": answer})
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--precision", choices=("exact", "bf16", "fp8"))
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--items", type=Path, default=ITEMS, help="other questions (default: plain_questions.jsonl)")
    parser.add_argument("--show", action="store_true", help="print each wrong answer")
    arguments = parser.parse_args()
    try:
        items = read_items(arguments.items)
        llm = LLM(arguments.model, device=arguments.device, precision=arguments.precision)
    except (OSError, ValueError) as error:
        parser.exit(1, f"{parser.prog}: {describe_error(error)}\n")
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for item in items:
        answer = ask(llm, item, arguments.max_tokens)
        asked[item["group"]] += 1
        if is_right(item, answer):
            right[item["group"]] += 1
        elif arguments.show:
            print(item["id"], item["group"], repr(item["turns"][-1]), "->", repr(answer[:200]), flush=True)
    shares = {group: round(100 * right[group] / count, 1) for group, count in asked.items()}
    print(json.dumps({"all": round(100 * right.total() / asked.total(), 1), **shares, "questions": dict(asked)}))


if __name__ == "__main__":
    main()
