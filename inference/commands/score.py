"""`deepseek-v32 score FILE.jsonl`: log-probabilities, perplexity and greedy agreement of texts, many in each step.

A line of the output is {"id", "tokens", "logprobs", "sum", "perplexity", "agreement"} or {"id", "error"}, as texts are complete.
A repeated run scores the lines that the output lacks, failed ones included: the output is the only state.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...model.checkpoint.files import parse_object
from .files import JsonlLog, read_lines
from .options import TerminalOptions, option, with_options
from .prompts import Prompt, check_id, parse_prompt, plain_tokens
from .terminal import answer_bar

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.running.scoring import Text
    from ..llm import LLM


@dataclass
class Totals:
    """Sums over the scored texts of an output, those of earlier runs included."""

    texts: int = 0
    tokens: int = 0  # that are scored
    logprob: float = 0.0
    likeliest: float = 0.0  # tokens that are the likeliest at their place

    def add(self, record: dict[str, Any]) -> str | None:
        """Count a line of the output, and return its key; None for a failed one. KeyError or TypeError for any other line."""
        key = json.dumps(record["id"])
        if "error" in record:
            return None
        count = len(record["tokens"])
        self.texts, self.tokens, self.logprob = self.texts + 1, self.tokens + count, self.logprob + record["sum"]
        self.likeliest += record["agreement"] * count
        return key

    def __str__(self) -> str:
        if not self.tokens:
            return "no tokens scored"
        shown = (
            f"{self.tokens:,} tokens of {self.texts:,} texts, perplexity {perplexity(self.logprob, self.tokens):.4f}"
        )
        return f"{shown}, {self.likeliest / self.tokens:.2%} of them the likeliest"


@with_options
def score(
    options: TerminalOptions,
    input_file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.JSONL",
            help='Each line: {"text": "…"}, or tokens or messages instead, and optionally id, and answer: the only part scored.',
        ),
    ],
    output: Annotated[
        Path | None, option("JSONL file for the scores. Lines that already have scores there are skipped.")
    ] = None,
) -> None:
    """Score texts: log-probabilities, perplexity, greedy agreement."""
    lines, refused = read_texts(input_file)
    totals = Totals()
    log = None if output is None else JsonlLog(output, totals.add, drop_failed=True)

    def write(values: dict[str, Any]) -> None:
        if log is not None:
            log.append(values)
        else:
            totals.add(values)
            print(json.dumps(values, ensure_ascii=False), flush=True)

    with nullcontext() if log is None else log.holding([json.dumps(line.id) for line in lines]):
        rest = [line for line in lines if log is None or json.dumps(line.id) not in log.done]
        if len(rest) < len(lines):
            print(f"{len(lines) - len(rest)} of {len(lines)} texts have scores in {output} already", file=sys.stderr)
        failed = len(refused)
        for values in refused:
            write(values)
        if rest:
            needs_text = any(line.source != "token_ids" or isinstance(line.answer, str) for line in rest)
            # No tokens are sampled, so that neither drafts nor graphs of decodes have a use.
            llm = options.load(needs_text=needs_text, reuse_pages=False, decode_graphs=False, speculative_tokens="0")
            failed += score_all(llm, rest, write)
    print(totals, file=sys.stderr)
    if failed:
        print(f"{failed} texts failed; their lines say why", file=sys.stderr)
        raise typer.Exit(1)


def read_texts(path: Path) -> tuple[list[Prompt], list[dict[str, Any]]]:
    """Read the texts of a file, and a record for each line that is none."""
    lines: list[Prompt] = []
    refused: list[dict[str, Any]] = []
    places: dict[str, str] = {}
    for number, text in read_lines(path):
        try:
            line = parse_prompt(text, number, f"{path}, line {number}", more=("answer",))
            check_id(line, places)
            lines.append(line)
        except ValueError as error:
            id = None
            with suppress(ValueError):
                id = parse_object(text.encode()).get("id")
            refused.append({"id": id, "error": str(error)})
    if not lines and not refused:
        raise ValueError(f"{path} has no texts; expected at least 1")
    return lines, refused


def score_all(llm: "LLM", lines: Sequence[Prompt], write: Callable[[dict[str, Any]], None]) -> int:
    """Call `write` with each text's record when it is complete; returns the number of failed ones."""
    from ..engine.running.scoring import Text, score_texts

    start, failed, done, computed = time.perf_counter(), 0, 0, 0
    of: dict[Text, Prompt] = {}

    def texts(engine: "Engine") -> Iterator[Text]:
        nonlocal failed, done
        for line in lines:
            try:
                tokens, first = encode(llm, line)
                text = Text(engine.requests.from_tokens(tokens, min_new_tokens=0), len(tokens) - 1, first)
            except ValueError as error:
                failed, done = failed + 1, done + 1
                write({"id": line.id, "error": line.refusal(error)})
                continue
            of[text] = line
            yield text

    with answer_bar(len(lines)) as show, llm.driver.engine() as engine:
        for text in score_texts(engine, texts(engine), top=1):
            line = of.pop(text)
            if text.error is None:
                write({"id": line.id, **record(text)})
            else:
                failed += 1
                write({"id": line.id, "error": line.refusal(text.error)})
            done, computed = done + 1, computed + text.count
            show(done, computed, 0)
    seconds = time.perf_counter() - start
    print(f"{computed:,} tokens in {seconds:.1f} s, {computed / seconds:,.1f} tokens/s", file=sys.stderr)
    return failed


def encode(llm: "LLM", line: Prompt) -> tuple[list[int], int]:
    """Token ids, and the position whose logits give the first scored one; without `answer`, a last message of the assistant's."""
    answer = line.answer
    last = line.content[-1] if line.source == "messages" and line.content else None
    if answer is None and isinstance(last, dict) and last.get("role") == "assistant":
        answer = last.get("content")
        if not isinstance(answer, str) or len(last) > 2:
            raise ValueError(f"the last message is {last!r:.100}; expected only a role and a text in an assistant's")
        line = replace(line, content=line.content[:-1])
    tokens = [*plain_tokens(llm, line)]
    if answer is None:
        if len(tokens) < 2:
            raise ValueError(f"the text has {len(tokens)} tokens; expected at least 2: the first has no probability")
        return tokens, 0
    assert llm.tokenizer is not None or not isinstance(answer, str)
    own = llm.tokenizer.encode(answer) if llm.tokenizer and isinstance(answer, str) else answer
    if not own:
        raise ValueError("answer is empty; expected at least 1 token")
    return [*tokens, *own], len(tokens) - 1


def record(text: "Text") -> dict[str, Any]:
    logprobs = [each.logprob for each in text.scores]
    likeliest = sum(each.top[0][0] == each.token_id for each in text.scores)
    return {
        "tokens": [each.token_id for each in text.scores],
        "logprobs": logprobs,
        "sum": sum(logprobs),
        "perplexity": perplexity(sum(logprobs), len(logprobs)),
        "agreement": likeliest / len(logprobs),
    }


def perplexity(logprob: float, tokens: int) -> float:
    """exp of the mean negative log-probability, or the largest number."""
    return math.exp(min(-logprob / tokens, 709.0))
