"""The stages of training, as a list of steps."""

import random
from dataclasses import dataclass, replace

TOKENS = 65536  # per step


@dataclass(frozen=True)
class Course:
    """How many steps each stage has, and which lengths. Shares are of steps."""

    steps: dict[str, int]
    dense: tuple[tuple[float, int], ...]  # (share, greatest length), one after the other
    sparse: dict[int, float]  # length: share, mixed
    rate: float  # greatest factor of the learning rate
    warmup: int
    hold: float  # share of the dense stage after which the rate falls
    end: float  # part of the rate that is left when the dense stage ends
    sparse_rate: float  # factor of the learning rate when the sparse stage begins; it falls to 0.02
    user: float  # weight of the user's text in the loss
    value_start: float  # weight of a value's first token, which chooses it


# Anew: a machine of one H200 that is held for twenty minutes, the measurements included. Short contexts first: copying is learned
# at 512 tokens, then extended.
ANEW = Course(
    {"dense": 8200, "indexer": 150, "sparse": 1400, "draft": 1300},
    ((0.16, 512), (0.40, 1024), (0.26, 4096), (0.11, 8192), (0.07, 16384)),
    {2048: 0.15, 4096: 0.2, 8192: 0.25, 16384: 0.4}, 1.0, 100, 0.6, 0.4, 0.52, 0.03, 1.0,
)  # fmt: skip
# From trained weights: about 20 minutes of training on one H200 at 40 ms a dense step (65,536 tokens each), 187 ms a sparse one
# and 81 of the draft layer. It copies already, so nothing is at 512 only; a fifth of the dense steps and 70 % of the sparse ones
# are at 8K tokens or more, where recall falls. The rate falls before the sparse stage, which begins about where the dense one
# ends. A wrong value begins with a wrong first token, so that one weighs more; the user's text, which is mostly chance, less.
CONTINUED = Course(
    {"dense": 22000, "indexer": 100, "sparse": 1000, "draft": 900},
    ((0.30, 1024), (0.30, 2048), (0.20, 4096), (0.12, 8192), (0.08, 16384)),
    {2048: 0.1, 4096: 0.2, 8192: 0.3, 16384: 0.34, 32768: 0.06}, 0.8, 200, 0.4, 0.35, 0.3, 0.01, 2.0,
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    stage: str
    length: int
    rate: float  # factor of the learning rate
    topk: int = 128
    indexer: bool = False  # whether the indexer has a loss
    sparse: bool = False  # whether attention reads selected tokens alone; in the draft stage, the draft layer's


def schedule(scale: float, seed: int, tokens: int = TOKENS, course: Course = ANEW, rate: float = 1.0) -> list[Step]:
    """All steps, known before the first one, so that a seed gives the same run. rate: factor of every learning rate."""
    steps = course.steps
    rng = random.Random(seed)
    plan: list[Step] = []

    def upto(length: int) -> int:  # people's conversations are short: questions follow what was told at once
        return max(256, min(rng.choices([length, length // 2, length // 4], [0.6, 0.2, 0.2])[0], tokens))

    dense = int(steps["dense"] * scale)
    for share, length in course.dense:
        for _ in range(int(dense * share)):
            done = len(plan) / dense
            fallen = max(0.0, (done - course.hold) / (1.0 - course.hold))
            factor = course.rate * min(1.0, (len(plan) + 1) / course.warmup) * (1.0 - (1.0 - course.end) * fallen)
            plan.append(
                Step("dense", min(length, tokens) if length <= 512 else upto(length), factor, indexer=done > 0.8)
            )
    for _ in range(int(steps["indexer"] * scale)):
        plan.append(Step("indexer", min(rng.choice([2048, 4096, 8192, 16384]), tokens), 1.0, indexer=True))
    sparse = int(steps["sparse"] * scale)
    for i in range(sparse):
        length = rng.choices(list(course.sparse), list(course.sparse.values()))[0]
        factor = min(1.0, (i + 1) / 50) * ((course.sparse_rate - 0.02) * (1 - i / sparse) + 0.02)
        plan.append(Step("sparse", min(length, tokens), factor, topk=128 if i % 2 else 256, indexer=True, sparse=True))
    draft = int(steps["draft"] * scale)
    for i in range(draft):  # the rest of the model is frozen and attends densely, which is faster and nearly the same
        done = i / draft
        length = 1024 if done < 0.3 else rng.choices([1024, 2048, 4096, 8192], [0.3, 0.3, 0.3, 0.1])[0]
        factor = min(1.0, (i + 1) / 50) * (1.0 - 0.95 * done)
        plan.append(Step("draft", min(length, tokens), factor, indexer=done > 0.5, sparse=done > 0.65))
    return [replace(step, rate=step.rate * rate) for step in plan]
