"""What drafts have won or lost against plain decoding, and what may still be lost to find out whether they pay."""

_SHARE = 0.015  # of the time of plain decoding that may be lost
_GRACE = 3.0  # tokens of an answer alone that may be lost before anything is won: 1 % of the first 300
_ASSUMED = (1.35, 1.8, 2.3, 2.8, 3.3)  # cost of a step with so many drafts over a plain one, until it has been measured
_FIRST = 8  # plain steps whose time may be that of captures
_LATEST = 5  # the quickest of so many plain steps says what one takes: others may wait for captures or other programs
_CAPTURE = 40.0  # plain steps, a bit more than the capture of one takes: 5 to 9 ms for the demo on an H200, beside 0.17
_EAGER = 1.1  # times a capture, for a run without a graph: so measured for four drafts of the demo
_LEAST_CAPTURE = 4.0  # plain steps that are more than the noise of the first ones


class DraftBudget:
    """Compares each step with what plain decoding would have taken for its tokens.

    Steps whose drafts pay add to the balance and others take from it, with all that they cost: wrong drafts, rows of padding,
    captures of CUDA graphs. A small share of all time is added, and only what is there is spent on trials; so the tokens a second
    stay above that share below plain decoding's, from the first ones on.

    What a plain step takes is measured by size (of about as many requests). Before that, a step with drafts is assumed to cost
    a multiple of it, and the balance is put right later.
    """

    def __init__(self, layers: int) -> None:
        self._layers = layers
        self._balance = 0.0  # seconds
        self._sizes: dict[int, _Steps] = {}

    def plain_step(self, number: int, seconds: float, follows: bool) -> None:
        """A step without the draft layer. number: of its size. follows: it has followed another one of its size."""
        size = self._size(number)
        self._balance += _SHARE * min(seconds, size.seconds or seconds)
        if len(size.first) < _FIRST:
            size.first.append(seconds)
        if follows:
            size.times.append(seconds)
            if len(size.times) == _LATEST:
                self.know(number, min(size.times))
                size.times.clear()

    def know(self, number: int, seconds: float) -> None:
        """A plain step of this size takes so long at present."""
        size = self._size(number)
        size.seconds = seconds
        if size.steps:  # those that were charged by an assumption
            self._balance += size.charged - (size.taken - (1 + _SHARE) * size.steps * seconds)
            size.steps = 0.0

    def drafted_step(self, number: int, drafts: int, seconds: float, steps: float) -> None:
        """A step that has verified or made so many drafts. steps: of plain decoding, that would have given as many tokens."""
        size = self._size(number)
        if size.seconds:
            self._balance -= seconds - (1 + _SHARE) * steps * size.seconds
            return
        assumed = seconds / _ASSUMED[drafts]
        charge = seconds - (1 + _SHARE) * steps * assumed
        self._balance -= charge
        size.assumed = min(assumed, size.assumed or assumed)
        size.steps, size.taken, size.charged = size.steps + steps, size.taken + seconds, size.charged + charge

    def affords(self, number: int, sequences: int, steps: float) -> bool:
        """Whether as much may be lost as so many plain steps of this size take."""
        size = self._size(number)
        # Before the first step, any unit of time serves.
        unit = size.seconds or size.assumed or max((each.seconds for each in self._sizes.values()), default=0) or 1e-6
        return self._balance + _GRACE / sequences * unit >= steps * unit

    def captures(self, number: int, drafts: int) -> float:
        """In plain steps of this size, about what the graphs of so many drafts cost that have none.

        The step runs once without a graph and is captured; the draft layer's passes run twice so, until they are captured. Each
        takes a layer's part of what the first plain steps took longer, if they were captured while answers waited.
        """
        size = self._size(number)
        excess = sum(size.first) / size.seconds - len(size.first) if size.seconds else 0.0
        passes = max(drafts, 1) / self._layers
        times = 1 + _EAGER + (1 + 2 * _EAGER) * passes
        return times * (excess if excess > _LEAST_CAPTURE else _CAPTURE)

    def _size(self, number: int) -> "_Steps":
        return self._sizes.setdefault(number, _Steps())


def assumed_cost(drafts: int) -> float:
    """Of a step with so many drafts over a plain one."""
    return _ASSUMED[drafts]


class _Steps:
    """Those of about as many requests."""

    def __init__(self) -> None:
        self.first: list[float] = []  # seconds of the first plain steps
        self.times: list[float] = []  # of those since `know` was told
        self.seconds = 0.0  # that one takes; 0: not known
        self.assumed = 0.0  # the same as far as steps with drafts tell
        # Steps that were charged by that: how many plain ones would have given their tokens, their time, and the charge.
        self.steps = self.taken = self.charged = 0.0
