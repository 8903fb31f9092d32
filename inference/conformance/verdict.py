"""Judges a server's answers: right, like a known bug, or wrong in another way.

Each log-probability's distance from the golden one is counted in units of what right implementations differ by there, without the
first unit, and compressed by asinh. Texts, calls and numbers of tokens are equal or not. Both make one vector u; a known bug has
a vector v of the same kind. Their similarity is Dice's: 2 u·v / (u·u + v·v), where each group of questions weighs the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .golden import Golden, Item, KnownBug, aligned, fields_of
from .probe import Observation
from .references import REFERENCES

TAIL = 0.02  # the share of a group's tokens that decides: many bugs change few tokens
DEVIATES = 3.5  # mean of |u| over this share: at most 3.0 of right implementations, transformers in bf16 among them
RESEMBLES = 0.45  # similarity that names a bug: right engines have up to 0.34, servers with the bug 0.69 and more
# The same of a bug that does not count: right engines have up to 0.45, servers with the bug 0.77 and more. Where rounding chooses
# other experts for one token, few questions give a right engine 0.6, so that the similarity without this token has to be RESEMBLES.
FAINT = 0.6
TWINS = 0.1  # bugs whose similarities differ by less are named together, unless texts tell them apart
SPARSE = 0.4  # largest share of dense attention's changes with DSA on: right engines have up to 0.30, dense ones 0.80 and more
# Units of bf16's noise: all of dense attention's changes at least, and one of them at most.
SHOWS_DENSE, CLIP = 10.0, 20.0
FIELD_WEIGHT = 3.0  # |u| of a wrong text or number
CHAT = "chat-"  # how the names of bugs of the chat format begin
DENSE = "dense-attention"  # the bug that says whether sparse attention is on at all


@dataclass(frozen=True)
class Match:
    """A known bug, compared with the answers."""

    name: str
    reference: str
    similarity: float  # 1: the same changes in the same places; 0: nothing in common; of dense attention also its share


@dataclass(frozen=True)
class Verdict:
    """The judgement. kind: right; bug: named in `matches`; other: wrong, but unlike all known bugs; unknown: too few answers."""

    kind: str
    matches: tuple[Match, ...]  # most similar first; for `bug`, those that cannot be told apart come first
    named: int  # how many leading matches the verdict names
    deviations: Mapping[str, float]  # by group: mean of the largest |u|
    fields: tuple[str, ...]  # one line for each text or number that is not the right one
    # Whether the server selects: DSA is on. None: another fault hides it, or the answers do not tell.
    sparse: bool | None
    compared: Mapping[str, int]  # by group: how many log-probabilities were compared
    missing: tuple[str, ...]  # what could not be asked, one line each
    dense_share: float | None = None  # of the changes of dense attention; None: the answers do not tell

    @property
    def confidence(self) -> float:
        """The similarity of a named bug. It is not a probability."""
        return self.matches[0].similarity if self.kind == "bug" else 0.0


class _Comparison:
    """A server's answers next to the golden ones."""

    def __init__(self, golden: Golden, seen: Observation) -> None:
        self.items = golden.items
        self.found = np.concatenate([aligned(item, seen.replies.get(item.name)) for item in self.items])
        self.groups = np.repeat([item.group for item in self.items], [item.size for item in self.items])
        self.names: list[str] = list(dict.fromkeys(self.groups.tolist()))  # of the groups
        self.noise = golden.noise_of(self.found)
        self.u = compressed(self.found - golden.logprobs, self.noise)
        self.said = {item.name: fields_of(item, seen.replies.get(item.name)) for item in self.items}
        self.wrong = {
            item.name: {name: value for name, value in self.said[item.name].items() if value != item.fields[name]}
            for item in self.items
        }

    def similarity(self, bug: KnownBug, without_place: bool = False) -> float:
        """Return Dice's similarity to a bug. without_place: leave out the place at which u and v have the most in common."""
        v, u = compressed(bug.change, self.noise), self.u
        if without_place:
            places = _places(self.items)
            u = np.where(places == self._telling_place(places, v), np.nan, u)
        common = energy = 0.0
        both = np.isfinite(u) & np.isfinite(v)
        for group in self.names:
            own = both & (self.groups == group)
            if own.any() and group in bug.groups:
                # Of all that the server gave: the few tokens before a bug leaves the right answer are not the whole group.
                count = int((np.isfinite(u) & (self.groups == group)).sum())
                common += float(np.sum(u[own] * v[own])) / count
                energy += float(np.sum(u[own] ** 2 + v[own] ** 2)) / count
        compared = sum(len(values) for values in self.said.values())
        for item in self.items:
            ours, theirs = self.wrong[item.name], bug.fields.get(item.name, {})
            for name in self.said[item.name] if item.group in bug.groups else ():
                if name == "prompt_tokens" and name in theirs and name not in ours:
                    return 0.0  # this bug changes how many tokens a prompt has, and no rounding does
                weight = FIELD_WEIGHT**2 / compared
                energy += weight * ((name in ours) + (name in theirs))
                common += weight * (name in ours and name in theirs and ours[name] == theirs[name])
        return 2 * common / energy if energy else 0.0

    def same_texts(self, bug: KnownBug) -> float | None:
        """The share of wrong texts and numbers in common with a bug: Dice's. None if the bug was asked no such question."""
        asked = [item for item in self.items if item.group in bug.groups]
        if any(self.wrong.values()) and not any(self.wrong[item.name] for item in asked):
            return None
        same = count = 0
        for item in asked:
            ours, theirs = self.wrong[item.name], bug.fields.get(item.name, {})
            for name in self.said[item.name]:
                count += (name in ours) + (name in theirs)
                same += name in ours and name in theirs and ours[name] == theirs[name]
        return 2 * same / count if count else 0.0

    def _telling_place(self, places: np.ndarray, v: np.ndarray) -> int:
        known = np.isfinite(self.u)
        counts = {group: max(int((known & (self.groups == group)).sum()), 1) for group in self.names}
        common = np.nan_to_num(self.u * v) / np.array([counts[group] for group in self.groups.tolist()])
        return int(np.argmax(np.bincount(places, common)))


def judge(golden: Golden, seen: Observation) -> Verdict:
    """Compare a server's answers with the golden ones and with each known bug's."""
    ours = _Comparison(golden, seen)
    u, groups, items = ours.u, ours.groups, golden.items
    lines = tuple(
        f"{item.name}: {name} is {str(value)!r:.80}; expected {str(item.fields[name])!r:.80}"
        for item in items
        for name, value in ours.wrong[item.name].items()
    )
    compared = {group: int(np.isfinite(u[groups == group]).sum()) for group in ours.names}
    deviations = {group: _tail(u[groups == group]) for group, count in compared.items() if count}
    matches, known = [], {}
    for bug in golden.bugs:
        known[bug.name] = bug
        if bug.name.startswith(CHAT) and not seen.takes_token_ids:
            bug = replace(bug, groups=("chat",))  # every group's prompts went through the chat format
        matches.append(Match(bug.name, REFERENCES.get(bug.name, ""), ours.similarity(bug)))
    matches.sort(key=lambda match: -match.similarity)

    def is_enough(match: Match) -> bool:
        """Tell whether a similarity names a bug. Rounding may look like a faint bug at one token, so others must show it, too."""
        bug = known[match.name]
        if golden.counts(bug):
            return match.similarity > RESEMBLES
        return match.similarity > FAINT and ours.similarity(bug, without_place=True) > RESEMBLES

    kind, named = "right", 0
    if not any(compared.values()) and not any(ours.said.values()):
        kind = "unknown"
    else:
        best = matches[0].similarity if matches else 0.0
        alike = [match for match in matches if match.similarity > best - TWINS and is_enough(match)]
        texts = {bug.name: ours.same_texts(bug) for bug in golden.bugs}
        shared = [share for match in alike if (share := texts[match.name]) is not None]
        most = max(shared, default=0.0)
        told_apart = [match for match in alike if (share := texts[match.name]) is not None and share < most / 2]
        named = len(alike) - len(told_apart)
        together = [match for match in alike if match not in told_apart]
        matches = [*together, *told_apart, *(match for match in matches if match not in alike)]
        if named:  # also where the changes are small: noise resembles no bug
            kind = "bug"
        elif lines or any(value > DEVIATES for value in deviations.values()):
            kind = "other"
    share = _dense_share(golden, ours.found - golden.logprobs)
    chat_alone = all(match.name.startswith(CHAT) for match in matches[:named])
    forward = [value for group, value in deviations.items() if group != "chat"]
    sparse = None
    if DENSE in [match.name for match in matches[:named]]:
        sparse = False
    elif share is not None and chat_alone and all(value <= DEVIATES for value in forward):
        sparse = True if share < SPARSE else False if share > 1 - SPARSE else None
    if share is not None and sparse is False and kind == "right":  # within the noise of each token, but at all of them
        kind, named = "bug", 1
        matches = [replace(match, similarity=share) if match.name == DENSE else match for match in matches]
        matches.sort(key=lambda match: match.name != DENSE)
    return Verdict(kind, tuple(matches), named, deviations, lines, sparse, compared, _missing(seen), share)


def _dense_share(golden: Golden, change: np.ndarray) -> float | None:
    """The least-squares share of dense attention in a change fp32 [F], by bf16's noise: 1 without DSA. None: it cannot be told."""
    v = next((bug.change for bug in golden.bugs if bug.name == DENSE), None)
    if v is None:
        return None
    known = np.isfinite(change) & np.isfinite(v)
    ours, dense = (np.clip(each[known] / golden.noises[0][known], -CLIP, CLIP) for each in (change, v))
    energy = float(dense @ dense)
    return float(ours @ dense) / energy if energy > SHOWS_DENSE**2 else None


def compressed(change: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return u of a change of log-probabilities, both fp32 [F]."""
    units = np.abs(change) / noise
    compressed_units: np.ndarray = np.sign(change) * np.arcsinh(np.maximum(units - 1, 0) / 2)
    return compressed_units


def _tail(u: np.ndarray) -> float:
    """Return the mean of the largest |u|: the share TAIL of the group, at least three."""
    known = np.sort(np.abs(u[np.isfinite(u)]))
    return float(known[-max(3, round(TAIL * len(known))) :].mean())


def _places(items: Sequence[Item]) -> np.ndarray:
    """int [F]: the place in the answers or given texts to which each log-probability belongs."""
    sizes = [1 + (len(item.others[n]) if item.others else 0) for item in items for n in range(len(item.answer))]
    return np.repeat(np.arange(len(sizes)), sizes)


def _missing(seen: Observation) -> tuple[str, ...]:
    lines = []
    if not seen.gives_logprobs:
        lines.append(
            "the server gives no log-probabilities: only texts were compared, which small errors do not change"
        )
    if not seen.takes_token_ids:
        lines.append(
            "the server takes no token ids: prompts went through its chat format, whose errors look like the model's"
        )
    elif not seen.scores_prompts:
        lines.append("the server scores no prompts (echo with logprobs): only answers were compared")
    reasons: dict[str, list[str]] = {}
    for item, reason in seen.refusals.items():
        reasons.setdefault(reason, []).append(item)
    return (*lines, *(f"not answered: {', '.join(names)}: {reason}" for reason, names in reasons.items()))
