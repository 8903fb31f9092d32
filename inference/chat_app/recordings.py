"""Recorded answers, kept for the inspector while there is room."""

import threading
from collections import OrderedDict
from typing import Any

from ..report.recording import Recording

BUDGET = 512 << 20  # bytes of all recordings together


class Recordings:
    """By run id, which is random enough that only the tab that asked knows it. The least recently used go first."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._recordings: OrderedDict[str, Recording] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, run_id: str, recording: Recording) -> None:
        with self._lock:
            self._recordings[run_id] = recording
            while len(self._recordings) > 1 and sum(r.bytes for r in self._recordings.values()) > self._budget:
                self._recordings.popitem(last=False)

    def __len__(self) -> int:
        return len(self._recordings)

    # What the page may ask for; None stands for what is not here (any more).

    def header(self, run_id: Any) -> dict[str, Any] | None:
        recording = self._get(run_id)
        return recording.header() if recording else None

    def totals(self, run_id: Any) -> dict[str, Any] | None:
        recording = self._get(run_id)
        return recording.totals() if recording else None

    def selection(self, run_and_index: Any) -> dict[str, Any] | None:
        """[run id, index of the token in the answer]."""
        if not isinstance(run_and_index, list) or len(run_and_index) != 2 or not isinstance(run_and_index[1], int):
            return None
        recording = self._get(run_and_index[0])
        if recording is None or not 0 <= run_and_index[1] < recording.count:
            return None
        return recording.selection(run_and_index[1])

    def _get(self, run_id: Any) -> Recording | None:
        with self._lock:
            if not isinstance(run_id, str) or run_id not in self._recordings:
                return None
            self._recordings.move_to_end(run_id)
            return self._recordings[run_id]
