"""Log-probabilities of a given text: what `echo` with `logprobs` shows and what evaluations by likelihood compare."""

import logging
import time
from concurrent.futures import Future

import torch

from ..params import Request, TokenLogprob
from .engine import Engine
from .scheduler import Batch

log = logging.getLogger(__name__)

CHUNK_BYTES = 2**27  # of fp32 logits at a time; 128 MiB are 259 tokens of the released model's vocabulary


class ScoreJob:
    """One prompt to be scored by the engine's thread; `future` gets one entry for each token after the first."""

    def __init__(self, request: Request, top: int, deadline: float) -> None:
        """deadline: as time.monotonic() counts."""
        self.future: Future[list[TokenLogprob]] = Future()
        self._request = request
        self._top = top
        self._deadline = deadline

    def run(self, engine: Engine) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(score(engine, self._request, self._top, self._deadline))
        except Exception as error:
            log.exception("scoring a prompt failed")
            self.future.set_exception(error)

    def fail(self, error: Exception) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


def score(engine: Engine, request: Request, top: int, deadline: float = float("inf")) -> list[TokenLogprob]:
    """log p(token | tokens before it) for every token of the prompt but the first, with the `top` likeliest in its place.

    Between two steps; the latest running requests are preempted if the pages are needed. Chunk by chunk, so that the logits
    of a long prompt need not fit the memory. TimeoutError at the deadline (time.monotonic).
    """
    tokens = request.tokens
    chunk = max(min(CHUNK_BYTES // (4 * engine.config.vocab_size), engine.limits.max_batch_tokens), 1)
    scores: list[TokenLogprob] = []
    engine.drain()
    request.pages = engine.scheduler.take_pages(engine.pool.pages_for(len(tokens)))
    try:
        for start in range(0, len(tokens) - 1, chunk):
            if time.monotonic() > deadline:
                raise TimeoutError("the request's time is over")
            request.computed = start
            count = min(chunk, len(tokens) - start)
            batch = Batch((request,), (start,), (count,), decodes=int(count == 1), logit_counts=(count,))
            scores += _scores(engine.runner.run(batch), tokens[start + 1 : start + count + 1], top)
    finally:
        engine.pool.release(request.pages)
    return scores


def _scores(logits: torch.Tensor, following: list[int], top: int) -> list[TokenLogprob]:
    """logits fp32 [N, vocab]; the last row may have no following token."""
    logprobs = logits[: len(following)].log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(following, device=logits.device)[:, None])[:, 0].tolist()
    values, ids = logprobs.topk(min(top, logits.shape[-1]), dim=-1)
    return [
        TokenLogprob(token, logprob, tuple(zip(row_ids, row_values, strict=True)))
        for token, logprob, row_ids, row_values in zip(following, chosen, ids.tolist(), values.tolist(), strict=True)
    ]
