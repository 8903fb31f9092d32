"""The inspector shows the passage that holds the answer: in the chat, and in the page that the command line writes."""

import base64
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepseek_v32.inference.chat_app import answering
from deepseek_v32.inference.chat_app.experiments import Experiments, Recordings
from deepseek_v32.inference.engine.running.selection import row_bytes
from deepseek_v32.inference.params import SamplingParams
from deepseek_v32.inference.recording import Recording
from deepseek_v32.inference.report.page import notebook_frame, write_report
from deepseek_v32.inference.text.detokenizer import token_texts
from support.chat_server import LAYERS, NEEDLE, TOPK, ScriptedService, scripted_llm

LINES = [f"Item {i}: the committee talked about lamp number {i} and came to no conclusion." for i in range(60)]
TEXT = "\n".join([*LINES[:35], NEEDLE, *LINES[35:]])
QUESTION = f"{TEXT}\n\nWhat is the door code of the Tolmir Archive?"


@pytest.mark.parametrize("tokens", [9, 0])
def test_an_answer_is_recorded_until_the_memory_is_used_up(
    open_tab: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    """Whatever the maximum length would allow, which is far more here."""
    scripted.service.replies[QUESTION] = "The door code of the Tolmir Archive is 4815. " + "I am sure. " * 20
    scripted.service.pace = 0
    monkeypatch.setattr(answering, "MOST_RECORDED", tokens * row_bytes(LAYERS, TOPK))
    tab = open_tab()
    page = tab.page
    tab.ask(QUESTION)
    line = page.locator(".read").inner_text()
    if not tokens:
        assert re.fullmatch(r"Read [\d.]+ % of [\d,]+ tokens · not recorded", line), line
        assert not page.locator(".answer [data-action=inspect]").is_visible()
        return
    assert re.fullmatch(
        r"Read [\d.]+ % of [\d,]+ tokens( · found [\d,]+ tokens back)? · recorded up to token 9", line
    ), line
    page.click(".answer [data-action=inspect]")
    page.wait_for_selector(".dsa-story")
    assert "(the first 9 of " in page.locator(".dsa-words-of").inner_text()
    assert page.locator(".dsa-words-of").inner_text().startswith("The door code")


def test_experts_see_the_heat_map_and_the_plot(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    page = tab.page
    scripted.service.replies[QUESTION] = "The door code of the Tolmir Archive is 4815."
    scripted.service.pace = 0
    page.click("#dsa-inspect")
    tab.ask(QUESTION)
    page.click(".dsa-experts > summary")
    page.wait_for_selector(".dsa-mass td[style]")
    assert page.locator(".dsa-layers .dsa-picked").inner_text() == f"Layer {LAYERS}"
    assert page.locator(".dsa-passage .dsa-words").first.inner_text() == NEEDLE
    shaded = "".join(page.locator(".dsa-text .dsa-l4").all_inner_texts())
    assert NEEDLE in shaded and "committee" not in shaded
    figure = page.locator(".dsa-figure").inner_text()
    assert "%" in figure and "tokens read" in figure
    heat = page.locator(".dsa-heat")
    heat.scroll_into_view_if_needed()
    box = heat.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 6)
    assert page.locator(".dsa-heat-note").inner_text().startswith(f"Layer {LAYERS}, tokens ")
    heat.click(position={"x": 10, "y": 5})
    assert page.locator(".dsa-layers .dsa-picked").inner_text() == "Layer 1"
    assert page.locator(".dsa-ticks span").count() == 5
    page.locator(".dsa-slider").fill("3")
    page.wait_for_function("document.querySelectorAll('.dsa-token')[2].classList.contains('dsa-picked')")
    page.locator(".dsa-slider").fill("0")
    page.wait_for_function("document.querySelectorAll('.dsa-token.dsa-picked').length === 0")
    assert "against dense attention" in page.locator(".dsa-figure").inner_text()
    page.locator(".dsa-table summary").last.click()
    assert page.locator(".dsa-table tr").last.inner_text().startswith(f"layer {LAYERS}")


def recording(budget: int = 1 << 30) -> Recording:
    llm = scripted_llm()
    service = ScriptedService(llm, pace=0)
    prompt = llm.chat_token_ids([{"role": "user", "content": QUESTION}])
    service.replies[QUESTION] = "It is 4815."
    made = Recording(prompt, LAYERS, TOPK, budget=budget)
    for delta in service.stream(prompt, inspect=True):
        if delta.selection:
            made.add(delta.token_ids[0], delta.selection)
    made.about = {"model": "some", "temperature": 0.6}
    made.label(partial(token_texts, tokenizer=llm.tokenizer), llm.tokenizer.special_ids.values())
    return made


def test_header_selection_and_totals_agree() -> None:
    made = recording()
    header = made.header()
    assert "".join(header["texts"]).endswith("</think>It is 4815.")
    assert header["recorded"] == len(header["shares"]) == made.count > 3
    totals = np.stack([np.frombuffer(base64.b64decode(row), dtype="<u2") for row in made.totals()["layers"]])
    summed = np.zeros_like(totals)
    for index in range(made.count):
        selection = made.selection(index)
        length = selection["position"] + 1
        for layer, bitmap in enumerate(selection["layers"]):
            bits = np.unpackbits(np.frombuffer(base64.b64decode(bitmap), np.uint8), count=length, bitorder="little")
            summed[layer, :length] += bits
            if layer == 0:
                assert bits.sum() == TOPK
        assert header["shares"][index] == pytest.approx(np.mean([b for b in _sizes(made, index)]) / length, abs=1e-5)
    assert (summed == totals).all()
    assert header["read"] == totals.sum() / LAYERS or abs(header["read"] - totals.sum() / LAYERS) < 1


def _sizes(made: Recording, index: int) -> list[int]:
    selection = made._selections[index]
    return [len(selection.positions(layer)) for layer in range(LAYERS)]


def test_words_are_whole_and_name_their_passage() -> None:
    made = recording()
    texts = made.texts
    words = made.header()["words"]
    assert [word["text"] for word in words] == ["It", "is", "4815"]
    for word in words:
        first, last = word["tokens"]
        written = "".join(texts[len(made.prompt) + first : len(made.prompt) + last])
        assert word["text"] in written and len(written) <= len(word["text"]) + 2
    found = words[-1]
    assert found["copied"] and "".join(texts[slice(*found["passage"])]).strip() == NEEDLE
    assert made.story is not None and made.story.passage == found["passage"] and made.is_quoted


def test_a_full_memory_keeps_shares_and_says_so() -> None:
    made = recording(budget=1000)
    header = made.header()
    assert 0 < header["recorded"] < len(header["shares"])
    with pytest.raises(IndexError):
        made.selection(header["recorded"])


def test_json_names_the_positions(tmp_path: Path) -> None:
    made = recording()
    write_report(tmp_path / "out.json", made)
    report = json.loads((tmp_path / "out.json").read_text())
    last = report["tokens"][-1]["selected"][str(LAYERS - 1)]
    assert NEEDLE in "".join(report["texts"][position] for position in last)
    scores = report["tokens"][-1]["scores"][str(LAYERS - 1)]
    strong = [position for position, score in zip(last, scores, strict=True) if score == 9]
    assert "".join(report["texts"][position] for position in strong).strip() == NEEDLE
    with pytest.raises(ValueError, match="expected"):
        write_report(tmp_path / "out.txt", made)


def test_the_page_stands_alone(chromium: Any, tmp_path: Path) -> None:
    write_report(tmp_path / "out.html", recording())
    page = chromium.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda r: problems.append(r.url) if not r.url.startswith("file:") else None)
    page.goto((tmp_path / "out.html").as_uri())
    assert page.locator(".dsa-story blockquote").inner_text() == NEEDLE
    shown = page.locator(".dsa-context").inner_text()
    assert "What is the door code" in shown and "temperature 0.6" in shown
    page.click(".dsa-experts > summary")
    assert page.locator(".dsa-passage .dsa-words").first.inner_text() == NEEDLE
    assert page.locator(".dsa-run").count() == 0 and "not measured" in page.locator(".dsa-mass").inner_text()
    page.close()
    assert not problems


def test_explanations_open_by_keyboard_and_by_touch(chromium: Any, tmp_path: Path) -> None:
    write_report(tmp_path / "out.html", recording())
    context = chromium.new_context(has_touch=True, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto((tmp_path / "out.html").as_uri())
    page.tap(".dsa-experts > summary")
    hints = page.locator(".dsa-hint")
    assert hints.count() >= 4 and page.locator(".dsa-explanation:visible").count() == 0
    hints.first.tap()
    assert page.locator(".dsa-explanation:visible").count() == 1
    hints.nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator(".dsa-explanation:visible").count() == 2
    assert hints.nth(1).get_attribute("aria-expanded") == "true"
    page.keyboard.press("Space")
    assert page.locator(".dsa-explanation:visible").count() == 1
    assert min(box["width"] for box in (hints.nth(i).bounding_box() for i in range(4))) >= 22
    # The legend's swatches have the colours of the text.
    swatch, shaded = (
        page.locator(selector).first.evaluate("each => getComputedStyle(each).backgroundColor")
        for selector in (".dsa-legend .dsa-l4", ".dsa-text .dsa-l4")
    )
    unread = page.locator(".dsa-legend .dsa-l0").evaluate("each => getComputedStyle(each).backgroundColor")
    assert swatch == shaded and unread == "rgba(0, 0, 0, 0)"
    context.close()


def test_a_notebook_shows_the_page_in_a_frame(chromium: Any) -> None:
    frame = notebook_frame(recording())
    page = chromium.new_page()
    page.set_content(frame)
    assert page.frame_locator("iframe").locator(".dsa-story blockquote").inner_text() == NEEDLE
    page.close()


def test_an_experiment_stands_beside_the_recorded_answer(open_tab: Any, scripted: Any) -> None:
    reply = "The door code of the Tolmir Archive is 4815."
    scripted.service.replies[QUESTION] = reply
    tab = open_tab()
    page = tab.page
    page.click("#dsa-inspect")
    tab.ask(QUESTION)
    page.click(".dsa-experts > summary")
    page.wait_for_selector(".dsa-mass td[style]")
    assert page.locator(".dsa-mass td[style]").all_inner_texts() == ["25 %"] * 4
    page.locator(".dsa-passage-buttons button", has_text="Forbid").first.click()
    page.locator(".dsa-choices button", has_text="Window").click()
    page.locator(".dsa-k").fill("0")
    scripted.service.replies[QUESTION] = "I was not told."
    page.click(".dsa-experts .dsa-run")
    page.wait_for_selector(".dsa-verdict")
    assert page.locator(".dsa-verdict").inner_text().startswith("A different answer")
    assert page.locator(".dsa-altered").inner_text() == "I was not told."
    changes = page.locator(".dsa-change small").all_inner_texts()
    assert set(changes) == {"−2.00"} and len(changes) == page.locator(".dsa-token").count()
    policy = scripted.service.policies[-1]
    first, last = policy.forbidden[0]
    texts = token_texts(
        scripted.service.llm.chat_token_ids([{"role": "user", "content": QUESTION}]), scripted.service.tokenizer
    )
    assert (policy.selector, policy.topk) == ("window", 16) and "".join(texts[first:last]).strip() == NEEDLE
    assert "".join(texts[policy.start :]).startswith("What is the door code") or policy.start > last
    # Everywhere, and with an error of the server.
    page.locator(".dsa-choices button", has_text="Everywhere").click()
    page.locator(".dsa-choices button", has_text="Dense").click()
    page.click(".dsa-experts .dsa-run")
    page.wait_for_function("document.querySelector('.dsa-experts .dsa-run').disabled === false")
    assert (scripted.service.policies[-1].start, scripted.service.policies[-1].selector) == (0, "dense")


def test_what_the_page_may_ask_of_an_experiment() -> None:
    llm = scripted_llm()
    service: Any = ScriptedService(llm, pace=0)
    made, records = recording(), Recordings()
    records.keep("run", made, SamplingParams(seed=1))
    trials = Experiments(service, records)
    score, measured = service.score_answer, list[int]()
    service.score_answer = lambda *given, **named: (measured.append(0), time.sleep(0.3), score(*given, **named))[2]
    with ThreadPoolExecutor(2) as pool:  # one experiment at a time: the second finds the first one's result
        assert None not in pool.map(trials.mass, ["run", "run"]) and len(measured) == 1
    change: dict[str, Any] = {"selector": "indexer", "topk": 16, "forbidden": [], "pinned": []}
    assert trials.replay({"run": "run", "change": change})["same"] is False
    assert trials.replay({"run": "other", "change": change}) is None and trials.mass("other") is None
    for wrong, message in (
        ({"selector": "magic"}, "selector"),
        ({"topk": -3}, "topk"),
        ({"topk": "16"}, "topk"),
        ({"forbidden": [[5, 2]]}, "forbidden"),
        ({"forbidden": "all"}, "forbidden"),
        ({"pinned": [[1, 2, 3]]}, "pinned"),
        ({"pinned": [["a", "b"]]}, "pinned"),
    ):
        assert message in trials.replay({"run": "run", "change": change | wrong})["error"]
    for junk in (None, 3, [], {"run": "run"}, {"run": ["run"], "change": change}):
        assert trials.replay(junk) is None
    assert trials.progress("nothing") is None and trials.progress([1]) is None
