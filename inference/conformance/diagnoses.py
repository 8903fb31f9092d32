"""All hypotheses about a difference between two traces, and the ones that fit it."""

from .diagnoses_attention import HYPOTHESES as ATTENTION
from .diagnoses_case import Case, Diagnosis, Hypothesis, diagnose
from .diagnoses_experts import HYPOTHESES as EXPERTS
from .diagnoses_index import HYPOTHESES as INDEX
from .diagnoses_selection import HYPOTHESES as SELECTION

HYPOTHESES: tuple[Hypothesis, ...] = (*INDEX, *SELECTION, *ATTENTION, *EXPERTS)


def diagnoses_of(case: Case) -> list[Diagnosis]:
    """What explains the difference, the best explanation first."""
    return diagnose(case, HYPOTHESES)
