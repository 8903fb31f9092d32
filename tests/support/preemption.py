"""Preemption on demand."""

from deepseek_v32.inference import LLM
from deepseek_v32.inference.params import Delta


def preempt_every_other_step(llm: LLM) -> list[bool]:
    """Make the engine lose its latest request before every second step; returns a list of what happened, step by step."""
    engine = llm.engine
    step = engine.step
    happened: list[bool] = []

    def step_after_preemption() -> list[Delta]:
        happened.append(len(happened) % 2 == 0 and bool(engine.scheduler.running))
        if happened[-1]:
            engine.drain()
            happened[-1] = bool(engine.scheduler.running)
        if happened[-1]:
            engine.scheduler.preempt_latest()
        return step()

    engine.step = step_after_preemption  # type: ignore[method-assign]
    return happened
