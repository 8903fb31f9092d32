"""Files of answers: a file's prompts answered together, in a file that a run which was cut off takes up again."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text.answer import parse_assistant
from .asking import Asking
from .jsonl_log import JsonlLog
from .prompt_file import Prompt
from .terminal import record

if TYPE_CHECKING:
    from ..llm import LLM
    from ..params import Completion, SamplingParams

WINDOW = 1024  # prompts that are in the engine at a time


class AnswerFile(JsonlLog):
    """The answers to a file's prompts, in the order in which they end. Failed answers stay; their prompts are asked again."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _key_if_done)

    def has_answer(self, prompt: Prompt) -> bool:
        return json.dumps(prompt.id) in self.done


def _key_if_done(answer: dict[str, Any]) -> str | None:
    """The id as JSON, so that 1 and "1" differ."""
    key = json.dumps(answer["id"])
    return key if answer["finish_reason"] in ("stop", "length") else None


def answer_file(
    load: "Callable[[], LLM]", prompts: list[Prompt], asking: Asking, output: Path | None, as_json: bool
) -> int:
    """Answer the prompts of a file, together; returns how many failed. Answers go to ``output``, or to standard output:
    as JSON in the order in which they come, or as in DeepSeek's program in the order of the prompts."""
    if output is None:
        return _run(load(), prompts, asking, _print_json if as_json else None)
    with closing(AnswerFile(output)) as answers:
        left = [prompt for prompt in prompts if not answers.has_answer(prompt)]
        if len(left) < len(prompts):
            print(f"{len(prompts) - len(left)} of {len(prompts)} answers are in {output} already", file=sys.stderr)
        return _run(load(), left, asking, answers.append) if left else 0


def _print_json(values: dict[str, Any]) -> None:
    print(json.dumps(values, ensure_ascii=False), flush=True)


def _run(llm: "LLM", prompts: list[Prompt], asking: Asking, write: Callable[[dict[str, Any]], None] | None) -> int:
    failed = tokens = 0
    start = time.perf_counter()
    for window in (prompts[at : at + WINDOW] for at in range(0, len(prompts), WINDOW)):
        texts: dict[int, str] = {}
        for index, values in _answers(llm, window, asking):
            failed += values["finish_reason"] == "error"
            tokens += values.get("usage", {}).get("completion_tokens", 0)
            if write is not None:
                write(values)
            texts[index] = values.get("text", values.get("error", ""))
        if write is None:
            for index, prompt in enumerate(window):
                print(f"Prompt: {prompt.content}\nCompletion: {texts[index]}\n", flush=True)
    seconds = time.perf_counter() - start
    print(
        f"{len(prompts) - failed} answers, {failed} failed, {tokens} tokens in {seconds:.1f} s, "
        f"{tokens / seconds:.1f} tokens/s",
        file=sys.stderr,
    )
    return failed


def _answers(llm: "LLM", prompts: list[Prompt], asking: Asking) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index, record) as they finish; a prompt that cannot be asked fails alone."""
    good: list[tuple[int, list[int], SamplingParams]] = []
    for index, prompt in enumerate(prompts):
        try:
            token_ids, params = asking.request(llm, prompt)
            llm.engine.make_request(token_ids, params)
        except ValueError as error:
            yield index, {"id": prompt.id, "finish_reason": "error", "error": f"{prompt.place}: {error}"}
        else:
            good.append((index, token_ids, params))
    completions = llm.as_completed([ids for _, ids, _ in good], [params for _, _, params in good]) if good else ()
    for place, completion in completions:
        index = good[place][0]
        yield index, _record(llm, prompts[index], completion, asking)


def _record(llm: "LLM", prompt: Prompt, completion: "Completion", asking: Asking) -> dict[str, Any]:
    answer = None if llm.tokenizer is None else parse_assistant(completion.text, asking.thinks(prompt))
    return record(completion, answer, id=prompt.id)
