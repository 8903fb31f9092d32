"""Files of answers: a file's prompts answered together, in a file that a run which was cut off takes up again."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text.answer import parse_assistant
from .asking import Asking
from .files import lock, remove_if_empty
from .prompt_file import Prompt
from .terminal import record

if TYPE_CHECKING:
    from ..llm import LLM
    from ..params import Completion, SamplingParams

START = b'{"id": '  # of every answer's line
WINDOW = 1024  # prompts that are queued at a time


class AnswerFile:
    """A JSONL file that grows by whole lines, so that a run that was cut off can be taken up again."""

    def __init__(self, path: Path):
        """Opens the file, made if need be. What a crash left of a last line is cut off. ValueError if another run has it."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._path = path
        lock(self._file, path)
        content = b"".join(self._chunks())
        complete = content.rfind(b"\n") + 1
        self.answered: frozenset[str] = frozenset(self._ids(content[:complete]))
        rest = content[complete:]
        if not rest.startswith(START[: len(rest)]):
            raise ValueError(f"{path}, last line: not an answer of an earlier run; name another --output")
        if rest:
            os.ftruncate(self._file, complete)

    def holds(self, prompt: Prompt) -> bool:
        """Whether the prompt has its answer; one that failed or was cancelled has none."""
        return json.dumps(prompt.id) in self.answered

    def append(self, record: dict[str, Any]) -> None:
        """Add a line in one write."""
        os.write(self._file, (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "replace"))

    def close(self) -> None:
        remove_if_empty(self._file, self._path)
        os.close(self._file)

    def _chunks(self) -> Iterator[bytes]:
        while chunk := os.read(self._file, 1 << 20):
            yield chunk

    def _ids(self, content: bytes) -> Iterator[str]:
        for number, line in enumerate(content.splitlines(), 1):
            try:
                answer = json.loads(line)
                own, reason = answer["id"], answer["finish_reason"]
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"{self._path}, line {number}: not an answer of an earlier run; name another --output"
                ) from None
            if reason in ("stop", "length"):
                yield json.dumps(own)


def answer_file(
    load: "Callable[[], LLM]", prompts: list[Prompt], asking: Asking, output: Path | None, as_json: bool
) -> int:
    """Answer the prompts of a file, together; returns how many failed. Answers go to ``output``, or to standard output:
    as JSON in the order in which they come, or as in DeepSeek's program in the order of the prompts."""
    if output is None:
        return _run(load(), prompts, asking, _print_json if as_json else None)
    with closing(AnswerFile(output)) as answers:
        left = [prompt for prompt in prompts if not answers.holds(prompt)]
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
