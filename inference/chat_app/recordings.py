"""Recorded answers, kept in memory for the inspector."""

import threading
from collections import OrderedDict
from typing import Any

from ..params import SamplingParams
from ..recording import Recording

BUDGET = 512 << 20  # bytes of all recordings together


class Recordings:
    """Recordings by run id. Only the tab that asked can know the id, because it is random. The least recently used are dropped."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._recordings: OrderedDict[str, tuple[Recording, SamplingParams]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, run_id: str, recording: Recording, params: SamplingParams) -> None:
        """params: with which the answer was sampled, seed included."""
        with self._lock:
            self._recordings[run_id] = recording, params
            while len(self._recordings) > 1 and sum(r.bytes for r, _ in self._recordings.values()) > self._budget:
                self._recordings.popitem(last=False)

    def __len__(self) -> int:
        return len(self._recordings)

    def find(self, run_id: Any) -> tuple[Recording, SamplingParams] | None:
        with self._lock:
            if not isinstance(run_id, str) or run_id not in self._recordings:
                return None
            self._recordings.move_to_end(run_id)
            return self._recordings[run_id]

    # The page calls the methods below. They return None for a recording that is not, or no longer, in memory.

    def header(self, run_id: Any) -> dict[str, Any] | None:
        recording = self._get(run_id)
        return recording.header() if recording else None

    def totals(self, run_id: Any) -> dict[str, Any] | None:
        recording = self._get(run_id)
        return recording.totals() if recording else None

    def selection(self, run_and_index: Any) -> dict[str, Any] | None:
        """`run_and_index`: [run id, index of the token in the answer]."""
        if not isinstance(run_and_index, list) or len(run_and_index) != 2 or not isinstance(run_and_index[1], int):
            return None
        recording = self._get(run_and_index[0])
        if recording is None or not 0 <= run_and_index[1] < recording.count:
            return None
        return recording.selection(run_and_index[1])

    def _get(self, run_id: Any) -> Recording | None:
        found = self.find(run_id)
        return found[0] if found else None
