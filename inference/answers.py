"""Requests in, answers out: their deltas, their completions, and a progress bar over these."""

from collections.abc import Iterator

from ..kernels.errors import check_flags
from ..model.config import ModelConfig, Precision
from .completion import Completion, Delta
from .engine.driver import Driver
from .engine.request import Request
from .inspection import recorded
from .text.tokenizer import Tokenizer


class Answers:
    """Queues requests and takes their answers from the engine. Closing an iterator cancels its open requests."""

    def __init__(self, driver: Driver, config: ModelConfig, precision: Precision, tokenizer: Tokenizer | None) -> None:
        self._driver = driver
        self._sizes = (config, precision, tokenizer)  # of recordings

    def deltas(self, requests: list[Request]) -> Iterator[Delta]:
        """The deltas as they come; a completion whose selection is recorded has its recording."""
        by_id = {request.id: request for request in requests}
        return self._driver.deltas(requests, lambda delta: recorded(*self._sizes, by_id[delta.request_id], delta))

    def completions(self, requests: list[Request]) -> Iterator[tuple[int, Completion]]:
        """(index of the request, completion) as each finishes."""
        index = {request.id: i for i, request in enumerate(requests)}
        for delta in self.deltas(requests):
            if delta.completion is not None:
                yield index[delta.request_id], delta.completion

    def all(self, requests: list[Request], use_tqdm: bool) -> list[Completion]:
        """The completions in the order of the requests."""
        check_flags(use_tqdm=use_tqdm)
        completions = self.completions(requests)
        found = dict(_with_bar(completions, len(requests)) if use_tqdm else completions)
        return [found[i] for i in range(len(requests))]


def _with_bar(completions: Iterator[tuple[int, Completion]], total: int) -> Iterator[tuple[int, Completion]]:
    """The completions, with a bar on standard error, or in the notebook, that counts them and their tokens."""
    from tqdm.auto import tqdm  # it takes a while to import, and few ask for it

    tokens = 0
    with tqdm(total=total, desc="Answers", unit=" answers", dynamic_ncols=True) as bar:
        for index, completion in completions:
            tokens += completion.usage.completion_tokens
            bar.set_postfix_str(f"{tokens / max(bar.format_dict['elapsed'], 1e-3):.1f} tokens/s", refresh=False)
            bar.update()
            yield index, completion
