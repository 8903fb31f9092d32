"""One step's work, as the scheduler hands it to the runner. It knows no tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..request import Request


@dataclass(frozen=True)
class Batch:
    """Entry i processes ``requests[i].tokens[starts[i] : starts[i] + counts[i]]``; in place of the last ones come its drafts.

    The scheduler sets all fields (Batch.of; `sampled_rows` in schedule_ahead; those about drafts in Speculation), and they never
    change. scoring.prompt_steps makes its own, with logits from Text.first on. On other ranks BatchDecoder sets rank 0's values.
    """

    requests: tuple[Request, ...]  # [B]; the decodes come first; the entries that the draft layer leaves out come last
    starts: tuple[int, ...]  # [B]; position of the first new token, which is also the number of tokens in the cache
    counts: tuple[int, ...]  # [B]; number of new tokens
    decodes: int  # how many leading entries have exactly one new token, and drafts after it
    # [B]; how many of the last new tokens get logits: 0 inside a prompt, else 1, more with drafts
    logit_counts: tuple[int, ...]
    # [B], or empty if the host knows all tokens but drafts. Entry i's token is the one that the previous step samples from row
    # sampled_rows[i] of its logits; it is read from the device.
    sampled_rows: tuple[int, ...] = ()
    # Both [B], or empty if there are none: how many of the last new tokens are drafts, and the row of the runner's table, on the
    # device, that begins with them.
    draft_counts: tuple[int, ...] = ()
    draft_rows: tuple[int, ...] = ()
    # The draft layer's work after the step. None: none. 0: it writes its entries of the new tokens. More: it also makes that many
    # drafts for each sampling request, in row i of the table for the i-th of them.
    draft_tokens: int | None = None
    # How many leading entries it goes over; None: all. The others lie inside of prompts whose answers get no drafts.
    draft_entries: int | None = None
    # AttentionMetadata.on_logits of a step without a graph. Other ranks drop the logits.
    take_logits: Callable[[Any], None] | None = None

    @classmethod
    def of(cls, entries: list[tuple[Request, int]]) -> "Batch":
        """A batch of (request, number of new tokens) pairs. Logits are computed for each request whose last token is among them."""
        entries = sorted(entries, key=lambda entry: entry[1] != 1)  # a stable sort
        return cls(
            requests=tuple(request for request, _ in entries),
            starts=tuple(request.cache.computed for request, _ in entries),
            counts=tuple(count for _, count in entries),
            decodes=sum(count == 1 for _, count in entries),
            logit_counts=tuple(int(count == request.remaining) for request, count in entries),
        )

    def leading(self, count: int) -> "Batch":
        """Return the first `count` entries, which include all decodes, as a batch of the same step."""
        return replace(self.in_order(range(count)), draft_entries=None)

    def in_order(self, order: Sequence[int]) -> "Batch":
        """These entries in this order, with the decodes first, as a batch of the same step."""
        assert not self.sampled_rows
        names = ("requests", "starts", "counts", "logit_counts", "draft_counts", "draft_rows")
        ordered: dict[str, Any] = {
            name: tuple(values[i] for i in order) for name in names if (values := getattr(self, name))
        }
        return replace(self, **ordered)

    @property
    def tokens(self) -> int:
        return sum(self.counts)

    @property
    def decode_rows(self) -> int:
        """Return the number of leading tokens on the decode path: the decodes' tokens with their drafts."""
        return sum(self.counts[: self.decodes])

    @property
    def is_inspected(self) -> bool:
        """Tell whether a sampling request asks for its selections."""
        return any([request.is_inspected for request in self.sampling])

    @property
    def most_drafts(self) -> int:
        return max(max(self.draft_counts, default=0), self.draft_tokens or 0)

    @property
    def sampling(self) -> list[Request]:
        """The requests for which this step samples tokens, in the order of their logits."""
        return [request for request, logit_count in zip(self.requests, self.logit_counts, strict=True) if logit_count]
