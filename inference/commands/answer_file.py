"""`generate --input-file`: answer all prompts of a file together, into a file that a later run resumes."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text.answer import parse_assistant
from .jsonl_log import JsonlLog
from .prompt_encoder import PromptEncoder
from .prompt_file import Prompt
from .terminal import record

if TYPE_CHECKING:
    from ..llm import LLM
    from ..params import Completion, SamplingParams

WINDOW = 1024  # prompts that are in the engine at a time


class AnswerFile(JsonlLog):
    """The answers to a file's prompts, in the order in which they finish. Failed answers stay; their prompts are asked again."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _key_if_done)

    def has_answer(self, prompt: Prompt) -> bool:
        return json.dumps(prompt.id) in self.done


def _key_if_done(answer: dict[str, Any]) -> str | None:
    """The id as JSON, so that 1 and "1" differ."""
    key = json.dumps(answer["id"])
    return key if answer["finish_reason"] in ("stop", "length") else None


def answer_file(
    load: "Callable[[], LLM]", prompts: list[Prompt], encoder: PromptEncoder, output: Path | None, as_json: bool
) -> int:
    """Answer the prompts of a file together; returns the number of failed ones.

    Answers go to `output`. Without it they go to standard output: as JSON in the order in which they finish, or in the order of
    the prompts and in the words of DeepSeek's own program.
    """
    if output is None:
        return _answer_all(load(), prompts, encoder, _print_json if as_json else None)
    with closing(AnswerFile(output)) as answers:
        unanswered = [prompt for prompt in prompts if not answers.has_answer(prompt)]
        if len(unanswered) < len(prompts):
            done = len(prompts) - len(unanswered)
            print(f"{done} of {len(prompts)} answers are in {output} already", file=sys.stderr)
        return _answer_all(load(), unanswered, encoder, answers.append) if unanswered else 0


def _print_json(values: dict[str, Any]) -> None:
    print(json.dumps(values, ensure_ascii=False), flush=True)


def _answer_all(
    llm: "LLM", prompts: list[Prompt], encoder: PromptEncoder, write: Callable[[dict[str, Any]], None] | None
) -> int:
    failed = tokens = 0
    start = time.perf_counter()
    for window in (prompts[at : at + WINDOW] for at in range(0, len(prompts), WINDOW)):
        texts: dict[int, str] = {}
        for index, values in _answers(llm, window, encoder):
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


def _answers(llm: "LLM", prompts: list[Prompt], encoder: PromptEncoder) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index of the prompt, its record) as they finish. A prompt that is refused fails alone."""
    accepted: list[tuple[int, list[int], SamplingParams]] = []
    for index, prompt in enumerate(prompts):
        try:
            token_ids, params = encoder.encode(llm, prompt)
            llm.engine.make_request(token_ids, params)
        except ValueError as error:
            yield index, {"id": prompt.id, "finish_reason": "error", "error": f"{prompt.place}: {error}"}
        else:
            accepted.append((index, token_ids, params))
    if not accepted:
        return
    indices, token_lists, params_list = zip(*accepted, strict=True)
    for place, completion in llm.as_completed(token_lists, params_list):
        index = indices[place]
        yield index, _record(llm, prompts[index], completion, encoder)


def _record(llm: "LLM", prompt: Prompt, completion: "Completion", encoder: PromptEncoder) -> dict[str, Any]:
    answer = (
        None
        if llm.tokenizer is None
        else parse_assistant(completion.text, encoder.is_thinking(prompt), encoder.tools(prompt))
    )
    return record(completion, answer, id=prompt.id)
