"""Ways for the engine to compute a text in several steps, each of which must give the trace of a single pass."""

from collections.abc import Callable

from conformance.small_model import text
from deepseek_v32.inference import LLM, SamplingParams
from deepseek_v32.inference.conformance.tracer import tracing
from deepseek_v32.inference.trace import Trace
from support.preemption import preempt_every_other_step

Schedule = Callable[[LLM], tuple[list[int], Trace]]  # the text, and the trace of its schedule
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def in_chunks(llm: LLM) -> tuple[list[int], Trace]:
    """The first chunk needs no selection, the others begin inside pages."""
    tokens = text(150)
    return tokens, llm.trace(tokens, chunk=40)


def with_a_reused_prefix(llm: LLM) -> tuple[list[int], Trace]:
    """Reuse three pages of another request's prompt, then decode."""
    prefix = text(192)
    llm.generate([*prefix, 1, 2], GREEDY)
    return _last(llm, [prefix + text(30, seed=2)])


def with_preemption(llm: LLM) -> tuple[list[int], Trace]:
    """The second of two requests is preempted before every other step, and computed again."""
    preempt_every_other_step(llm)
    try:
        return _last(llm, [text(70, seed=3), text(130, seed=4)])
    finally:
        del llm.engine.step  # type: ignore[misc]


def _last(llm: LLM, prompts: list[list[int]]) -> tuple[list[int], Trace]:
    """Generates; what was computed of the last prompt and its answer."""
    with tracing(llm.engine) as recorder:
        answers = llm.generate(prompts, GREEDY)
    id, count = max(recorder.requests.items())
    tokens = (prompts[-1] + list(answers[-1].token_ids))[:count]
    return tokens, recorder.trace(id, count)


SCHEDULES: dict[str, Schedule] = {
    "in chunks": in_chunks,
    "with a reused prefix": with_a_reused_prefix,
    "with preemption": with_preemption,
}
OF_BUG = {
    "index-keys-of-the-chunk-only": in_chunks,
    "index-keys-not-cached-while-dense": in_chunks,
    "latents-reused-without-index-keys": with_a_reused_prefix,
    "index-keys-stale-after-preemption": with_preemption,
}
