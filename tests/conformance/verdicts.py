"""The probe's verdict on a server, and what of it the table of scripts/conformance_table.py shows."""

from typing import Any

from deepseek_v32.inference.conformance.golden import Golden
from deepseek_v32.inference.conformance.probe import Probe
from deepseek_v32.inference.conformance.probe_client import Client
from deepseek_v32.inference.conformance.verdict import Verdict, judge


def probed(address: str, golden: Golden) -> Verdict:
    return judge(golden, Probe(Client(address, timeout=600)).run(golden.items))


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
        "missing": list(verdict.missing),
    }
