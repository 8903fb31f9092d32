"""Reports of mismatches that the checks of the caches find: one line for the request's error and the log, and a JSON file."""

import json
import logging
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...kernels.reference.cache_stamps import CHAIN, INDEX_BYTES, LATENT_BYTES, TOKENS
from ...kernels.types import INDEX, LATENT
from ..engine.request import Request

log = logging.getLogger(__name__)

MOST_FILES = 100  # of one process; further mismatches are only logged
# Ids of requests that are not reported again: the step that is ahead of the first report finds the same.
_REMEMBERED = 1024
_NAMES = {
    LATENT: "the stamp of its latent in layer {layer} is not that of its token and prefix",
    INDEX: "the stamp of its index key in layer {layer} is not that of its token and prefix",
    CHAIN: "its entry belongs to other tokens",
    TOKENS: "the entries up to it belong to other tokens",
    LATENT_BYTES: "the latents of its page in layer {layer} have changed since they were written",
    INDEX_BYTES: "the index keys of its page in layer {layer} have changed since they were written",
}

_CACHES = {LATENT: "latent", LATENT_BYTES: "latent", INDEX: "index", INDEX_BYTES: "index"}


@dataclass(frozen=True)
class Mismatch:
    """An entry that a check has found wrong."""

    step: int
    request: Request
    kind: int  # LATENT to INDEX_BYTES of kernels/cache_stamps.py
    layer: int
    position: int  # for bytes, the first of the page
    expected: int
    found: int


class CacheReports:
    """Writes reports into the system's temporary folder. They hold tokens, so only their owner may read them; the log has none."""

    def __init__(
        self, chain: Callable[[Request, int], int], page_size: int, stamp_at: Callable[[int, int, int], int]
    ) -> None:
        self._chain, self._page_size, self._stamp_at = chain, page_size, stamp_at
        self._files = 0
        self._reported: deque[int] = deque(maxlen=_REMEMBERED)

    def errors(self, found: Sequence[Mismatch], others: Sequence[Request]) -> dict[int, str]:
        """Report mismatches: one line for each request, by its id. others: whose entries may be in the place of the right ones."""
        first = {mismatch.request.id: mismatch for mismatch in reversed(found)}
        new = {id: mismatch for id, mismatch in first.items() if id not in self._reported}
        self._reported.extend(new)
        return {id: self._write(mismatch, others) for id, mismatch in new.items()}

    def _write(self, mismatch: Mismatch, others: Sequence[Request]) -> str:
        """Report a mismatch. Returns the error of its request."""
        if mismatch.kind == CHAIN:  # two entries do not follow each other: which belongs to the request's tokens?
            right = self._chain(mismatch.request, mismatch.position)
            if mismatch.expected != right:
                before = mismatch.position - 1
                mismatch = replace(mismatch, kind=TOKENS, position=before, expected=right, found=mismatch.expected)
        report = self._describe(mismatch, others)
        error = (
            f"the cache check failed at position {mismatch.position} (page {report['page']}, slot {report['slot']}): "
            f"{report['what']}"
        )
        path = self._save(report)
        error += f"; report: {path}" if path is not None else ""
        log.error("request %d: %s", mismatch.request.id, error)
        return error

    def _describe(self, mismatch: Mismatch, others: Sequence[Request]) -> dict[str, Any]:
        request, size = mismatch.request, self._page_size
        number = mismatch.position // size
        # None: it has given its pages back.
        page = request.cache.pages[number] if number < len(request.cache.pages) else None
        first = number * size
        return {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "request": request.id,
            "what": _NAMES[mismatch.kind].format(layer=mismatch.layer),
            "cache": _CACHES.get(mismatch.kind),
            "layer": mismatch.layer if mismatch.kind not in (CHAIN, TOKENS) else None,
            "position": mismatch.position,
            "page": page,
            "slot": None if page is None else page * size + mismatch.position % size,
            "page_of_request": number,
            "expected": f"{mismatch.expected:#x}",
            "found": f"{mismatch.found:#x}",
            "found_is_of_request": self._owner(mismatch, others),
            "step": mismatch.step,
            "prompt_tokens": len(request.prompt),
            "admission": request.cache.admission,
            "pages": list(request.cache.pages),
            "tokens_of_page": request.tokens[first : first + size],
        }

    def _owner(self, mismatch: Mismatch, others: Sequence[Request]) -> int | None:
        """The request whose entry of the same position is in the place, if it is one of the others."""
        if mismatch.kind in (LATENT_BYTES, INDEX_BYTES):
            return None
        count = mismatch.position + (mismatch.kind != CHAIN)  # the chain before the token, or after it
        for request in others:
            if len(request.tokens) < count or request is mismatch.request:
                continue
            chain = self._chain(request, count)
            stamped = mismatch.kind in (LATENT, INDEX)
            value = self._stamp_at(chain, mismatch.layer, mismatch.kind) if stamped else chain
            if value == mismatch.found:
                return request.id
        return None

    def _save(self, report: dict[str, Any]) -> Path | None:
        if self._files == MOST_FILES:
            return None
        try:
            descriptor, name = tempfile.mkstemp(".json", "deepseek-v32-cache-")
            with os.fdopen(descriptor, "w") as file:
                json.dump(report, file, indent=1)
        except OSError as error:
            log.error("the report of a cache check cannot be written: %s", error)
            return None
        self._files += 1
        return Path(name)
