"""The probe's verdict on a server, and what of it the table of scripts/conformance_table.py shows."""

from typing import Any

from conformance.neighbours import neighbours
from deepseek_v32.inference import LLM
from deepseek_v32.inference.conformance.golden import Golden
from deepseek_v32.inference.conformance.probe import Client, Probe
from deepseek_v32.inference.conformance.verdict import Verdict, judge
from golden.servers import serving


def probed(address: str, golden: Golden) -> Verdict:
    return judge(golden, Probe(Client(address, timeout=600)).run(golden.items))


def probed_in_batches(llm: LLM, golden: Golden, sequences: int) -> Verdict:
    """The verdict on a server of llm that has `sequences` requests to compute at a time, a few of them the probe's."""
    others = max(sequences - len([item for item in golden.items if item.group == "batch"]) - 1, 0)
    with serving(llm) as address, neighbours(llm, address, others) as running:
        verdict = probed(address, golden)
    assert max(running, default=0) >= min(sequences, 1 + others), "the batches were small"
    return verdict


def in_short(verdict: Verdict) -> dict[str, Any]:
    """As JSON values."""
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
