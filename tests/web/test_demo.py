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
NEEDLE = "Daniel orders the new chairs."

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
    page.click("#dsa-settings button")
    page.get_by_label("Temperature").last.fill("0")
    page.click("#dsa-settings button")
    page.click("#dsa-inspect")
    page.get_by_text("Find one line in a pasted text").click()
    page.wait_for_selector(".answer")
    tab.wait()
    assert "Daniel" in tab.answer()
    page.wait_for_selector(".dsa-passage")
    # The first view tells the story.
    assert page.locator(".dsa-story blockquote").inner_text().strip() == NEEDLE
    assert re.search(r"For “[^”]*\w[^”]*”", page.locator(".dsa-story").inner_text())  # a word, not a space
    assert page.locator(".dsa-passage .dsa-words").first.inner_text().strip() == NEEDLE
    assert page.locator(".dsa-token.dsa-picked").count() == 1
    page.wait_for_selector(".dsa-mass td[style]")
    assert "saved" in page.locator(".dsa-bytes").inner_text()
    figure = float(page.locator(".dsa-figure strong").inner_text().split()[0])
    assert figure < 30, "most of the context was read"
    # Without the line, it cannot be quoted.
    page.locator(".dsa-passage-buttons button", has_text="Forbid").first.click()
    page.click(".dsa-run")
    page.wait_for_selector(".dsa-verdict")
    assert page.locator(".dsa-verdict").inner_text().startswith("Another answer")
    assert NEEDLE not in page.locator(".dsa-altered").inner_text()
    sums = re.findall(r"−?\d+\.\d+(?= →|; most)", page.locator(".dsa-verdict").inner_text())
    before, after = (float(each.replace("−", "-")) for each in sums)
    assert after < before
    page.locator(".panel").evaluate("panel => panel.scrollTop = 0")
    if update:
        page.mouse.move(600, 600)
        page.wait_for_timeout(300)
        SCREENSHOT.parent.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOT)
    assert SCREENSHOT.stat().st_size <= 400_000


@pytest.mark.heavy
def test_a_second_question_reuses_the_pages_of_the_first(open_tab: Any, demo: Any) -> None:
    tab = open_tab(url=demo.url, http_credentials=CREDENTIALS)
    tab.page.set_default_timeout(60_000)
    tab.page.get_by_text("Tell it something, then ask").click()
    tab.page.wait_for_selector(".answer")
    tab.wait()
    tab.ask("Thank you. " * 30)
    tab.ask("And when is it?")
    assert "cached" in tab.page.locator(".numbers").last.inner_text()


def test_without_the_key_there_is_nothing_to_see(demo: Any) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(demo.url, timeout=10)
    assert refused.value.code == 401 and b"gradio" not in refused.value.read()
