"""Strict JSON for untrusted files: one object, unique keys, and a ValueError of one line for everything else."""

import json
from typing import Any

from .place import GET_IT, LFS_START


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in UTF-8 `data`. Raises ValueError for anything else, also for keys that appear twice."""
    if data.startswith(LFS_START):
        raise ValueError(GET_IT)
    try:
        values = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ValueError(f"not valid JSON ({' '.join(str(error).split())[:200]})") from error
    if not isinstance(values, dict):
        raise ValueError(f"not a JSON object but {type(values).__name__}")
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"key {key[:80]!r} appears twice")
        values[key] = value
    return values
