"""How often drafts have been right, by their place."""

from collections.abc import Sequence

import numpy as np

from ..limits import MAX_DRAFT_TOKENS

_CERTAIN = 13  # drafts whose fate says enough about all; half of them, as many as a trial verifies, if it is clear
_DECAY = 0.998  # of what earlier drafts say, for each later one


class DraftAcceptance:
    """The share of right drafts in each place, among those that were verified with all before them right."""

    def __init__(self) -> None:
        self._tried = [0.0] * MAX_DRAFT_TOKENS  # this and the next by place, decaying
        self._right = [0.0] * MAX_DRAFT_TOKENS

    def observe(self, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        """As DraftPolicy.observe."""
        for drafts, right in zip(drafted, accepted, strict=True):
            for place in range(min(drafts, right + 1)):
                self._tried[place] = _DECAY * self._tried[place] + 1
                self._right[place] = _DECAY * self._right[place] + (right > place)

    @property
    def is_known(self) -> bool:
        """Whether enough first drafts have been seen."""
        clear = not 0.2 * self._tried[0] < self._right[0] < 0.8 * self._tried[0]
        return self._tried[0] >= (_CERTAIN / 2 if clear else _CERTAIN)

    @property
    def is_likely(self) -> bool:
        """Whether most first drafts were right."""
        return 2 * self._right[0] > self._tried[0]

    def tokens(self, ready: float) -> np.ndarray:
        """[k + 1], of a step for each request, by the number of its drafts 0 to k; drafts are there for a part `ready`."""
        return np.cumsum(self._chances(ready))

    def variances(self, ready: float) -> np.ndarray:
        """[k + 1, k + 1]: of the differences between the logarithms of `tokens`, as far as shares are uncertain."""
        shares, chances = self._shares(), self._chances(ready)
        variances = shares * (1 - shares) / (np.array(self._tried) + 3)
        # d log(tokens of k drafts) / d share of place i: the drafts from place i on would all become likelier.
        places = np.arange(MAX_DRAFT_TOKENS)
        gains = np.array([[chances[i + 1 : k + 1].sum() for i in places] for k in range(MAX_DRAFT_TOKENS + 1)])
        slopes = gains / shares / np.cumsum(chances)[:, None]
        uncertain = slopes[:, None] - slopes[None]
        return (uncertain**2 * variances).sum(-1)

    def _shares(self) -> np.ndarray:
        """Of right drafts by place; two that were right half of the time stand for what is not known yet."""
        return (np.array(self._right) + 1) / (np.array(self._tried) + 2)

    def _chances(self, ready: float) -> np.ndarray:
        """[k + 1] that a request gets a further token from a place; the first one always comes."""
        return np.concatenate(([1.0], ready * np.cumprod(self._shares())))
