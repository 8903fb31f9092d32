"""Preemption on demand."""

from deepseek_v32.inference import LLM
from deepseek_v32.inference.completion import Delta


def preempt_every_other_step(llm: LLM) -> list[bool]:
    """Preempt the engine's latest request before every second step. Returns a list: for each step, whether one was preempted."""
    engine = llm.engine
    step = engine.step
    preempted: list[bool] = []

    def step_after_preemption() -> list[Delta]:
        preempted.append(len(preempted) % 2 == 0 and bool(engine.scheduler.running))
        if preempted[-1]:
            engine.drain()
            preempted[-1] = bool(engine.scheduler.running)
        if preempted[-1]:
            engine.scheduler.preempt_latest()
        return step()

    engine.step = step_after_preemption  # type: ignore[method-assign]
    return preempted
