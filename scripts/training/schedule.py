"""The stages of training, as a list of steps."""

import random
from dataclasses import dataclass

TOKENS = 65536  # per step
# Chosen for a machine of one H200 that is held for twenty minutes, the measurements included.
STEPS = {"dense": 8200, "indexer": 150, "sparse": 1400, "draft": 1300}


@dataclass(frozen=True)
class Step:
    stage: str
    length: int
    rate: float  # factor of the learning rate
    topk: int = 128
    indexer: bool = False  # whether the indexer has a loss
    sparse: bool = False  # whether attention reads selected tokens alone; in the draft stage, the draft layer's


def schedule(scale: float, seed: int, tokens: int = TOKENS) -> list[Step]:
    """All steps, known before the first one, so that a seed gives the same run."""
    rng = random.Random(seed)
    plan: list[Step] = []

    def upto(length: int) -> int:
        return max(256, min(rng.choices([length, length // 2, length // 4], [0.7, 0.2, 0.1])[0], tokens))

    dense = int(STEPS["dense"] * scale)
    # Short contexts first: copying is learned at 512 tokens, then extended. Fractions are of tokens, not of time.
    for share, length in ((0.16, 512), (0.40, 1024), (0.26, 4096), (0.11, 8192), (0.07, 16384)):
        for _ in range(int(dense * share)):
            done = len(plan) / dense
            rate = min(1.0, (len(plan) + 1) / 100) * min(1.0, 1.0 - 0.6 * max(0.0, (done - 0.6) / 0.4))
            plan.append(Step("dense", length if length <= 512 else upto(length), rate, indexer=done > 0.8))
    for _ in range(int(STEPS["indexer"] * scale)):
        plan.append(Step("indexer", min(rng.choice([2048, 4096, 8192, 16384]), tokens), 1.0, indexer=True))
    sparse = int(STEPS["sparse"] * scale)
    for i in range(sparse):
        length = rng.choices([2048, 4096, 8192, 16384], [0.15, 0.2, 0.25, 0.4])[0]
        rate = min(1.0, (i + 1) / 50) * (0.5 * (1 - i / sparse) + 0.02)
        plan.append(Step("sparse", min(length, tokens), rate, topk=128 if i % 2 else 256, indexer=True, sparse=True))
    draft = int(STEPS["draft"] * scale)
    for i in range(draft):  # the rest of the model is frozen and attends densely, which is faster and nearly the same
        done = i / draft
        length = 1024 if done < 0.3 else rng.choices([1024, 2048, 4096, 8192], [0.3, 0.3, 0.3, 0.1])[0]
        rate = min(1.0, (i + 1) / 50) * (1.0 - 0.95 * done)
        plan.append(Step("draft", min(length, tokens), rate, indexer=done > 0.5, sparse=done > 0.65))
    return plan
