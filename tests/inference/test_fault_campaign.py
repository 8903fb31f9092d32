"""A slice of the campaign of injected faults, and that it notices an engine that does not isolate them."""

import pytest
from campaigns import faults

from deepseek_v32.inference import LLM
from deepseek_v32.inference.engine.engine import Engine
from deepseek_v32.inference.engine.pages import PagePool
from deepseek_v32.inference.engine.step import InFlightStep
from deepseek_v32.inference.service.observers import Observers
from support.fake_model import fake_llm

# Some share their first pages; some grow into another page while they are answered.
PROMPTS = [[1, 2, 3], list(range(62)), list(range(70)), [7] * 60, [7] * 61, list(b"hello" * 12), [9], list(range(126))]


def small_llm() -> LLM:
    return fake_llm(ahead=True, page_count=4, max_model_len=256, max_sequences=4, max_batch_tokens=96)


def test_a_slice_of_the_campaign() -> None:
    result = faults.run(1, 150, small_llm(), PROMPTS)
    assert not result["failures"]
    assert result["trials"] == 150 and len(result["points"]) >= 35
    assert min(result["points"].values()) >= 4


@pytest.mark.parametrize(
    "owner, name", [(Engine, "recover"), (PagePool, "rebuild"), (InFlightStep, "_sample_each"), (Observers, "tell")]
)
def test_the_campaign_notices_what_is_missing(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(self: Observers, delta: object, *times: float) -> None:
        for observer in self._observers:
            observer.finished(delta, 0.0)  # type: ignore[arg-type]

    def fail(self: InFlightStep, logits: object) -> None:
        raise RuntimeError("sampling failed")

    missing = {"tell": tell, "_sample_each": fail}.get(name, lambda self, *arguments: None)
    monkeypatch.setattr(owner, name, missing)
    monkeypatch.setattr(faults, "SECONDS", 0.5)
    assert faults.run(2, 80, small_llm(), PROMPTS)["failures"]
