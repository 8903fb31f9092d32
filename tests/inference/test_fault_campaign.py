"""A slice of the campaign of injected faults, and that it notices an engine that does not isolate them."""

import pytest

from campaigns import fault_clients, faults
from campaigns.fault_points import Point
from deepseek_v32.inference import LLM
from deepseek_v32.inference.engine.scheduling.pages import PagePool
from deepseek_v32.model.expert_slots import _Slots
from support.fake_model import fake_llm

# Some share their first pages; some grow into another page while they are answered.
PROMPTS = [[1, 2, 3], list(range(62)), list(range(70)), [7] * 60, [7] * 61, list(b"hello" * 12), [9], list(range(126))]


def small_llm() -> LLM:
    return fake_llm(ahead=True, page_count=4, max_model_len=256, max_sequences=4, max_batch_tokens=96)


def test_a_slice_of_the_campaign() -> None:
    result = faults.run(1, 50, small_llm(), PROMPTS)
    assert not result["failures"]
    assert result["trials"] == 50 and len(result["points"]) >= 35


@pytest.mark.heavy
def test_faults_of_offloaded_experts() -> None:
    """Reads by threads that raise, return nothing or stall: only requests of the step that needed the expert end."""
    with faults.load(offload="experts", expert_slots=6) as llm:
        result = faults.run(1, 4, llm, fault_clients.demo_prompts(llm)[:6], where="experts")
    assert not result["failures"] and not result["different_answers"]
    assert set(result["points"].values()) == {1}


@pytest.mark.heavy
@pytest.mark.slow
def test_the_campaign_notices_a_failed_read_that_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expert that could not be read stays in its slot, so that later requests are ended, too, or get other answers."""
    monkeypatch.setattr(_Slots, "_drop", lambda slots, key: None)
    monkeypatch.setattr(fault_clients, "SECONDS", 5.0)
    with faults.load(offload="experts", expert_slots=24) as llm:
        assert faults.run(1, 3, llm, where="experts")["failures"]


def test_the_campaign_notices_an_engine_that_does_not_repair_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PagePool, "rebuild", lambda pool, held: None)
    monkeypatch.setattr(fault_clients, "SECONDS", 0.5)
    assert faults.run(2, 24, small_llm(), PROMPTS)["failures"]


def test_a_campaign_on_an_engine_without_pages_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign's fault points are never reached, and it still ends."""
    monkeypatch.setattr(PagePool, "rebuild", lambda pool, held: None)
    monkeypatch.setattr(fault_clients, "SECONDS", 0.5)
    monkeypatch.setattr(faults, "MISSES", 5)
    trial = faults.Campaign.trial

    def lose(campaign: faults.Campaign, point: Point) -> tuple[bool, list[str]]:
        campaign.llm.engine.pool.clear()
        campaign.llm.engine.pool.allocate(campaign.llm.engine.pool.available)
        return trial(campaign, point)

    monkeypatch.setattr(faults.Campaign, "trial", lose)
    assert "have not reached" in faults.run(1, 50, small_llm(), PROMPTS)["failures"][-1]
