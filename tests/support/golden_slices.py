"""Some of the probe's questions, so that a test takes seconds."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from deepseek_v32.inference.conformance.golden import Golden


def only(golden: Golden, names: Collection[str]) -> Golden:
    """Keep only these items' golden answers."""
    assert set(names) <= {item.name for item in golden.items}
    kept = np.concatenate([np.full(item.size, item.name in names) for item in golden.items])
    bugs = tuple(
        replace(
            bug,
            change=bug.change[kept],
            fields={name: fields for name, fields in bug.fields.items() if name in names},
        )
        for bug in golden.bugs
    )
    items = tuple(item for item in golden.items if item.name in names)
    values = {name: getattr(golden, name)[..., kept] for name in ("logprobs", "rounded", "held_out")}
    return replace(golden, items=items, bugs=bugs, **values)
