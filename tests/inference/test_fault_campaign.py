"""A slice of the campaign of injected faults, and that it notices an engine that does not isolate them."""

import pytest

from campaigns import fault_clients, faults
from campaigns.fault_points import Point
from deepseek_v32.inference import LLM
from deepseek_v32.inference.engine.scheduling.pages import PagePool
from support.fake_model import fake_llm

# Some share their first pages; some grow into another page while they are answered.
PROMPTS = [[1, 2, 3], list(range(62)), list(range(70)), [7] * 60, [7] * 61, list(b"hello" * 12), [9], list(range(126))]


def small_llm() -> LLM:
    return fake_llm(ahead=True, page_count=4, max_model_len=256, max_sequences=4, max_batch_tokens=96)


def test_a_slice_of_the_campaign() -> None:
    result = faults.run(1, 50, small_llm(), PROMPTS)
    assert not result["failures"]
    assert result["trials"] == 50 and len(result["points"]) >= 35


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
