"""Tokens do not wait for the launch of a following step that has no graph yet."""

from collections import Counter

from deepseek_v32.inference.engine.scheduling.batch import Batch
from deepseek_v32.inference.params import SamplingParams
from simulation.runner import SimulatedStep
from simulation.world import Settings, World

LAUNCH = 1.0  # seconds that one without a graph takes


def sampling(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def test_no_token_waits_for_two_slow_launches() -> None:
    """A step of decodes has a graph from its second launch on, any other step has none, as on a GPU."""
    world = World(Settings(pages=60, page_size=4, budget=8, sequences=4, context=48, token=0.001))
    launched, ahead = Counter[int](), 0
    run = world.runner.run

    def slow_run(batch: Batch, *arguments: object) -> SimulatedStep:
        nonlocal ahead
        ahead += bool(batch.sampled_rows)
        decodes = batch.decodes == len(batch.requests)
        if not decodes or launched[batch.decodes] < 2:
            world.advance(LAUNCH)
        launched[batch.decodes] += decodes
        return run(batch, *arguments)  # type: ignore[arg-type]

    gaps: list[float] = []
    world.runner.run = slow_run  # type: ignore[method-assign, assignment]
    world.runner.is_quick = lambda batch: launched[batch.decodes] >= 2  # type: ignore[method-assign]
    world._watcher.delivers = lambda delta, seconds, since_token: gaps.append(since_token or 0)  # type: ignore[method-assign]
    prompts = [(first, 0, 1) for first in range(3)]
    streams = [world.service.stream(prompt, sampling(40)) for prompt in prompts]
    for _ in range(8):
        world.turn()
    gaps.clear()
    streams.append(world.service.stream((0, 1) * 12, sampling(6)))
    while world.service.stats().open:
        world.turn()
    assert launched[4] > 2 and ahead > 20  # steps with a graph are still launched ahead
    assert LAUNCH <= max(gaps) < 2 * LAUNCH
