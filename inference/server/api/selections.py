"""What DSA selected, in responses: an extension of OpenAI's API, asked for with `return_selections`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...completion import Completion, Delta
from ...token_selection import TokenSelection


def selections(found: Sequence[TokenSelection]) -> list[dict[str, Any]]:
    """For each token: the position of its query in the sequence of prompt and answer; by layer, the positions that were attended
    to, ascending, and their scores where the layer had more to choose from than it takes."""
    return [
        {
            "query_position": each.position,
            "layers": {str(layer): positions.tolist() for layer, positions in each.layers.items()},
            "scores": {str(layer): np.round(scores.astype(float), 5).tolist() for layer, scores in each.scores.items()},
        }
        for each in found
    ]


def with_selections(choice: dict[str, Any], wanted: bool | None, completion: Completion) -> dict[str, Any]:
    """The choice of a whole answer, with `selections` if they are wanted."""
    return {**choice, "selections": selections(completion.selection or ())} if wanted else choice


def selections_of(deltas: Sequence[Delta]) -> list[dict[str, Any]]:
    """Those of a chunk's tokens."""
    return selections([delta.selection for delta in deltas if delta.selection is not None])
