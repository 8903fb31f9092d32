"""Preemption on demand."""

from deepseek_v32.inference import LLM
from deepseek_v32.inference.scheduler import Batch


def preempt_every_other_step(llm: LLM) -> list[bool]:
    """Make the engine lose its latest request before every second step; returns a list of what happened, step by step."""
    scheduler = llm.engine.scheduler
    schedule = scheduler.schedule
    happened: list[bool] = []

    def schedule_after_preemption() -> Batch:
        happened.append(len(happened) % 2 == 0 and bool(scheduler.running))
        if happened[-1]:
            scheduler.preempt_latest()
        return schedule()

    scheduler.schedule = schedule_after_preemption  # type: ignore[method-assign]
    return happened
