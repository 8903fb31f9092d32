"""The demo on the real server with a key, in a browser: its answer, and the passage that it read for it."""

import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCREENSHOT = ROOT / "docs" / "chat.png"
NEEDLE = "The wifi password is maple-otter-58."

KEY = "a-key-for-the-test"
CREDENTIALS = {"username": "anyone", "password": KEY}

pytestmark = pytest.mark.skipif(
    not (ROOT / "model/demo/model.safetensors").exists(), reason="this checkout has no demo checkpoint"
)


@pytest.fixture(scope="module")
def demo() -> Iterator[Any]:
    pytest.importorskip("gradio", reason="gradio is not installed: pip install -e .[web]")
    from deepseek_v32.inference import LLM
    from deepseek_v32.inference.chat_app.mount import mount_chat
    from deepseek_v32.inference.server.app import create_app
    from deepseek_v32.inference.server.service.service import Service
    from support.chat_server import serve_app

    llm = LLM(device="cpu", precision="exact", page_count=512)
    service = Service(llm)
    server = serve_app(
        create_app(service, model_name="deepseek-v3.2-demo", api_key=KEY, mount_page=mount_chat), service
    )
    yield server
    server.stop()


@pytest.mark.heavy
def test_the_demo_answers_and_the_inspector_shows_why(open_tab: Any, demo: Any) -> None:
    """The inspector shows the answer's passage. With UPDATE_SCREENSHOT=1 its picture becomes the README's."""
    update = bool(os.environ.get("UPDATE_SCREENSHOT"))
    tab = open_tab(url=demo.url, viewport={"width": 1360, "height": 960}, http_credentials=CREDENTIALS)
    page = tab.page
    page.set_default_timeout(60_000)
    page.get_by_text("Recall one thing from a long chat").click()
    page.wait_for_selector(".answer")
    tab.wait()
    assert "maple-otter-58" in tab.answer()
    line = re.fullmatch(
        r"Read ([\d.]+) % of [\d,]+ tokens · found [\d,]+ tokens back", page.locator(".read").last.inner_text()
    )
    assert line and float(line[1]) < 30, "most of the context was read"
    # The first card ends with the inspector open on its story, in whole words.
    page.wait_for_selector(".dsa-story blockquote")
    assert page.locator(".dsa-told").inner_text() == "maple-otter-58"
    assert page.locator(".dsa-story blockquote").inner_text() == NEEDLE
    end = "[...document.querySelectorAll('.answer')].at(-1).getBoundingClientRect().bottom"
    page.wait_for_function(f"{end} <= document.getElementById('dsa-log').getBoundingClientRect().bottom + 1")
    # Without the sentence, it cannot be quoted.
    page.click(".dsa-try")
    page.wait_for_selector(".dsa-side")
    with_it, without = page.locator(".dsa-side p").all_inner_texts()
    assert "maple-otter-58" in with_it and "maple-otter-58" not in without
    page.click(".found")
    page.wait_for_timeout(300)
    if update:
        page.mouse.move(600, 600)
        page.wait_for_timeout(300)
        SCREENSHOT.parent.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOT)
    assert SCREENSHOT.stat().st_size <= 400_000
    page.click(".dsa-experts > summary")
    page.wait_for_selector(".dsa-mass td[style]")
    assert "saved" in page.locator(".dsa-bytes").inner_text()
    page.locator(".dsa-passage-buttons button", has_text="Forbid").first.click()
    page.locator(".dsa-experts .dsa-run").click()
    page.wait_for_selector(".dsa-verdict")
    sums = re.findall(r"−?\d+\.\d+(?= →|; most)", page.locator(".dsa-verdict").inner_text())
    before, after = (float(each.replace("−", "-")) for each in sums)
    assert after < before


@pytest.mark.heavy
def test_functions_and_thoughts_are_tried_in_the_page(open_tab: Any, demo: Any) -> None:
    tab = open_tab(url=demo.url, http_credentials=CREDENTIALS)
    page = tab.page
    page.set_default_timeout(60_000)
    page.click("#dsa-settings button")
    page.get_by_role("checkbox", name="Weather").check()
    page.get_by_role("checkbox", name="Calculator").check()
    tab.ask("What is the weather in Paris?")
    assert page.locator(".call").inner_text() == 'get_weather {"city": "Paris"} → 18 degrees, cloudy'
    assert tab.answer().startswith("18 degrees, cloudy")
    tab.ask("What is 17 * 23?")
    assert "391" in tab.answer() and page.locator(".call").count() == 2
    page.get_by_role("checkbox", name="Weather").uncheck()
    page.get_by_role("checkbox", name="Calculator").uncheck()
    page.click("#dsa-new")
    tab.ask("My landlord is Petra Novak. Petra Novak's phone number is 555-0182. Where is the key?")
    tab.ask("What is my landlord's phone number?")
    assert "Turn thinking on" in tab.answer()
    page.click("[data-action=think]:visible")
    page.wait_for_selector(".thought:visible")
    tab.wait()
    assert "555-0182" in tab.answer() and page.locator("#dsa-thinking input").is_checked()


@pytest.mark.heavy
def test_a_second_question_reuses_the_pages_of_the_first(open_tab: Any, demo: Any) -> None:
    tab = open_tab(url=demo.url, http_credentials=CREDENTIALS)
    tab.page.set_default_timeout(60_000)
    tab.page.get_by_text("Tell it something, then ask").click()
    tab.page.wait_for_selector(".answer")
    tab.wait()
    tab.ask("Thank you. " * 30)
    tab.ask("And when is it?")
    tab.page.locator(".details summary").last.click()
    assert "cached" in tab.page.locator(".figures").last.inner_text()


@pytest.mark.parametrize("is_demo", [True, False], ids=["demo", "another"])
def test_the_demo_is_known_by_its_checkpoint_and_not_by_its_name(demo: Any, is_demo: bool) -> None:
    from fastapi.testclient import TestClient

    from deepseek_v32.inference.chat_app.mount import mount_chat
    from deepseek_v32.inference.server.app import create_app
    from deepseek_v32.inference.server.service.service import Service
    from support.chat_server import scripted_llm

    service = demo.service if is_demo else Service(scripted_llm())
    name = "mine" if is_demo else "deepseek-v3.2-demo"
    client = TestClient(create_app(service, model_name=name, mount_page=mount_chat), base_url="http://localhost")
    [card] = client.get("/v1/models").json()["data"]
    assert (card["id"], card["root"] == "deepseek-v3.2-demo") == (name, is_demo)
    page = client.get("/config").text
    assert name in page and ("demo model, 19 M parameters" in page) == is_demo
    assert ("The door code is 0042." in page) == is_demo
    [temperature] = [
        each["props"]["value"]
        for each in client.get("/config").json()["components"]
        if each["props"].get("label") == "Temperature"
    ]
    assert temperature == (0 if is_demo else 1)


def test_without_the_key_there_is_nothing_to_see(demo: Any) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(demo.url, timeout=10)
    assert refused.value.code == 401 and b"gradio" not in refused.value.read()
