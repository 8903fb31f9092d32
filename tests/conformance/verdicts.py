"""The probe's verdict on a server, and its short form for scripts/conformance_table.py."""

from typing import Any

import numpy as np

from conformance.neighbours import neighbours
from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.golden import Golden, Reply
from deepseek_v32.inference.conformance.probe import Client, Observation, Probe
from deepseek_v32.inference.conformance.verdict import TWINS, Verdict, judge
from golden.servers import serving


def probed(address: str, golden: Golden) -> Verdict:
    return judge(golden, Probe(Client(address, timeout=600)).run(golden.items))


def probed_in_batches(llm: LLM, golden: Golden, sequences: int) -> Verdict:
    """Probe a server of llm that computes `sequences` requests at a time, a few of them the probe's."""
    others = max(sequences - len([item for item in golden.items if item.group == "batch"]) - 1, 0)
    with serving(llm) as address, neighbours(llm, address, others) as running:
        verdict = probed(address, golden)
    assert max(running, default=0) >= min(sequences, 1 + others), "the batches were small"
    return verdict


def replayed(golden: Golden, change: np.ndarray, fields: dict) -> Observation:
    """A server that gives the golden answers with the given changes."""
    seen = Observation("replayed")
    for item in golden.items:
        values = iter((golden.logprobs + change)[golden.slices[item.name]].tolist())
        logprobs, top = [], []
        for number in range(len(item.answer)):
            logprobs.append(next(values))
            top.append({other: next(values) for other in (item.others[number] if item.others else ())})
        seen.replies[item.name] = Reply(
            item.answer, tuple(logprobs), tuple(top), **item.fields | fields.get(item.name, {})
        )
    return seen


def room(golden: Golden, name: str) -> float:
    """Return the least gap in similarity between a third bug and one that would be named with a bug and its twin.

    Replays the bug's answers, exact and with bf16 rounding noise. A negative result means that three are named.
    """
    bug = next(bug for bug in golden.bugs if bug.name == name)
    found = []
    for logprobs in (golden.logprobs, golden.rounded[0]):
        matches = judge(golden, replayed(golden, bug.change + logprobs - golden.logprobs, bug.fields)).matches
        others = sorted(match.similarity for match in matches if match.name != name)
        found.append(max(match.similarity for match in matches) - TWINS - others[-2])
    return min(found)


def in_short(verdict: Verdict) -> dict[str, Any]:
    """Summarise a verdict as JSON values."""
    matches = {match.name: round(match.similarity, 3) for match in verdict.matches[: verdict.named + 1]}
    return {
        "verdict": verdict.kind,
        "named": list(matches)[: verdict.named],
        "similarities": matches,
        "largest_deviation": round(max(verdict.deviations.values(), default=0.0), 2),
        "compared": sum(verdict.compared.values()),
        "other_fields": len(verdict.fields),
        "dense_share": None if verdict.dense_share is None else round(verdict.dense_share, 3),
        "missing": list(verdict.missing),
    }
