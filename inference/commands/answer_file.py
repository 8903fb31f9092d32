"""`generate --input-file`: answer all prompts of a file together, into a file that a later run resumes."""

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text.answer import AssistantMessage, parse_assistant
from .files import JsonlLog
from .prompts import Prompt, PromptEncoder
from .terminal import answer_bar

if TYPE_CHECKING:
    from ..completion import Completion
    from ..llm import LLM

# Only these prompts run at first, so that their answers can be read before all other prompts have been: until the first of them is
# complete, but no longer than this, because few requests at a time leave a GPU idle.
FIRST_PROMPTS, FIRST_SECONDS = 8, 3.0


def open_answers(path: Path) -> JsonlLog:
    """The answers to a file's prompts, in the order in which they finish. Failed ones stay in the file and are asked again."""

    def key_if_done(answer: dict[str, Any]) -> str | None:
        key = json.dumps(answer["id"])  # as JSON, so that 1 and "1" differ
        return key if answer["finish_reason"] in ("stop", "length") else None

    return JsonlLog(path, key_if_done)


def answer_file(
    load: "Callable[[], LLM]", prompts: list[Prompt], encoder: PromptEncoder, output: Path | None, as_json: bool
) -> int:
    """Answer the prompts together, into `output` or on standard output (JSON as they finish); returns how many failed."""
    if output is None:
        write = _printing(prompts, as_json)
        return _answer_all(load(), prompts, encoder, write, bar=not sys.stdout.isatty())
    answers = open_answers(output)
    with answers.holding([json.dumps(prompt.id) for prompt in prompts]):
        unanswered = [prompt for prompt in prompts if json.dumps(prompt.id) not in answers.done]
        if len(unanswered) < len(prompts):
            done = len(prompts) - len(unanswered)
            print(f"{done} of {len(prompts)} answers are in {output} already", file=sys.stderr)
        return _answer_all(load(), unanswered, encoder, lambda _, values: answers.append(values)) if unanswered else 0


def _printing(prompts: list[Prompt], as_json: bool) -> Callable[[int, dict[str, Any]], None]:
    """Make a function that prints answers: as JSON at once, or as text in the order of the prompts."""
    rest, waiting = deque(enumerate(prompts)), dict[int, str]()

    def write(index: int, values: dict[str, Any]) -> None:
        if as_json:
            print(json.dumps(values, ensure_ascii=False), flush=True)
            return
        waiting[index] = values.get("text", values.get("error", ""))
        while rest and rest[0][0] in waiting:
            index, prompt = rest.popleft()
            print(f"Prompt: {prompt.content}\nCompletion: {waiting.pop(index)}\n", flush=True)

    return write


def _answer_all(
    llm: "LLM",
    prompts: list[Prompt],
    encoder: PromptEncoder,
    write: Callable[[int, dict[str, Any]], None],
    bar: bool = True,
) -> int:
    """Call `write` with each prompt's place and record, as they finish. Returns the number of failed ones. bar: show progress."""
    failed = tokens = done = 0
    before, start = llm.stats(), time.perf_counter()
    with answer_bar(len(prompts), bar) as show:

        def progress() -> None:
            now = llm.stats()
            written = now.generated_tokens - before.generated_tokens
            show(done, max(now.computed_tokens - before.computed_tokens - written, 0), written)

        for index, values in _answers(llm, prompts, encoder, progress):
            failed += values["finish_reason"] == "error"
            tokens += values.get("usage", {}).get("completion_tokens", 0)
            done += 1
            write(index, values)
        progress()
    seconds = time.perf_counter() - start
    print(
        f"{len(prompts) - failed} answers, {failed} failed, {tokens} tokens in {seconds:.1f} s, "
        f"{tokens / seconds:.1f} tokens/s",
        file=sys.stderr,
    )
    return failed


def _answers(
    llm: "LLM", prompts: list[Prompt], encoder: PromptEncoder, progress: Callable[[], None]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (index of the prompt, its record) as they finish; call `progress` after each step. Only a refused prompt fails."""
    driver = llm.driver
    most = 2 * llm.limits.max_sequences  # the scheduler chooses among waiting prompts, and shares their prefixes
    waiting, running = deque(enumerate(prompts)), dict[int, int]()  # index by request id
    start, some_finished = time.perf_counter(), False
    try:
        while waiting or running:
            few = not some_finished and time.perf_counter() - start < FIRST_SECONDS
            while waiting and len(running) < (min(FIRST_PROMPTS, most) if few else most):
                index, prompt = waiting.popleft()
                try:
                    request = llm.requests.make_one(*encoder.encode(llm, prompt), False, None)
                except ValueError as error:
                    yield index, {"id": prompt.id, "finish_reason": "error", "error": prompt.refusal(error)}
                    continue
                driver.queue([request])
                running[request.id] = index
            for delta in driver.advance(set(running)) if running else ():
                if delta.completion is not None:
                    some_finished, index = True, running.pop(delta.request_id)
                    yield index, _record(llm, prompts[index], delta.completion, encoder)
            progress()
    finally:
        driver.cancel(set(running))


def _record(llm: "LLM", prompt: Prompt, completion: "Completion", encoder: PromptEncoder) -> dict[str, Any]:
    answer = (
        None
        if llm.tokenizer is None
        else parse_assistant(completion.text, encoder.is_thinking(prompt), encoder.tools(prompt), completion.is_cut)
    )
    return record(completion, answer, id=prompt.id)


def record(completion: "Completion", answer: AssistantMessage | None, **more: Any) -> dict[str, Any]:
    """Return a completion as JSON values. `answer` is None for a model without tokenizer: then token ids replace the text."""
    values = dict(more)
    if answer is None:
        values["token_ids"] = completion.token_ids
    else:
        values["text"] = answer.content
        if answer.reasoning_content is not None:
            values["reasoning_content"] = answer.reasoning_content
        if answer.tool_calls:
            values["tool_calls"] = [asdict(call) for call in answer.tool_calls]
    values["finish_reason"] = completion.finish_reason
    if completion.stop_reason is not None:
        values["stop_reason"] = completion.stop_reason
    if completion.error is not None:
        values["error"] = completion.error
    return {**values, "usage": asdict(completion.usage), "timings": asdict(completion.timings)}
