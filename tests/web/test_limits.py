"""Inputs that do not fit are refused at once, and the page notices when a lost server is back."""

import time
from typing import Any

import httpx

from support.chat_server import ScriptedService, scripted_llm, serve
from support.job import free_port


def test_a_file_that_is_too_long_is_not_attached(open_tab: Any) -> None:
    tab = open_tab()
    tab.page.set_input_files(
        "#dsa-attach-file", {"name": "long.txt", "mimeType": "text/plain", "buffer": b"x y " * 60_000}
    )
    tab.page.wait_for_selector("#dsa-notice.shown")
    notice = tab.page.locator("#dsa-notice").inner_text()
    assert notice.startswith("long.txt has ") and notice.endswith("the model reads at most 32,767.")
    assert tab.page.locator("#dsa-files .file").count() == 0


def test_a_message_that_is_too_long_stays_in_the_box(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    tab.ask("before")
    asked = len(scripted.service.asked)
    long = "x y " * 20_000
    tab.page.fill("#dsa-text textarea", long)
    tab.page.click("#dsa-send")
    tab.page.wait_for_selector("#dsa-notice.shown")
    notice = tab.page.locator("#dsa-notice").inner_text()
    assert notice.startswith("This message has ") and "at most 32,767" in notice
    assert tab.page.locator("#dsa-text textarea").input_value() == long
    assert tab.page.locator(".message").count() == 2 and len(scripted.service.asked) == asked
    tab.ask("and now?")
    assert tab.answer() == "You said: and now?" and "x y" not in scripted.service.asked[-1]


def test_more_answers_at_a_time_than_gradio_has_threads(scripted: Any) -> None:
    """And another event is served meanwhile."""
    service, count = scripted.service, 45
    asked, service.held, service.pace = len(service.asked), "crowd", 0
    question = {"data": [{}, "crowd", [], "", False, 0, 1, 9, "", []], "fn_index": 0}
    with httpx.Client(base_url=scripted.url, timeout=10) as http:
        for session in range(count):
            assert http.post("/gradio_api/queue/join", json={**question, "session_hash": f"{session}"}).is_success
        end = time.monotonic() + 20
        while len(service.asked) < asked + count:
            assert time.monotonic() < end
            time.sleep(0.05)
        restore = {"data": [], "fn_index": 5, "event_data": {}, "session_hash": "a"}
        assert "notice" in http.post("/gradio_api/run/predict", json=restore).json()["data"][0]
    service.held = None


def test_a_server_that_comes_back_finds_everything_as_it_was(open_tab: Any) -> None:
    """Its process is another one. In between, an answer grew, text and a file waited, and Send was pressed twice."""
    port = free_port()
    first = serve(ScriptedService(scripted_llm(), pace=0.05), port=port)
    tab = open_tab(url=first.url)
    tab.page.wait_for_timeout(300)
    tab.ask("word " * 200, wait=False)
    tab.page.wait_for_function("document.querySelector('.answer .body')?.innerText.length > 20")
    first.service.cancelled.update(range(9))
    first.stop()
    tab.page.wait_for_selector("#dsa-away:visible", timeout=30_000)
    assert tab.page.locator("#dsa-send").is_disabled()
    tab.page.set_input_files("#dsa-attach-file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b""})
    tab.page.fill("#dsa-text textarea", "and now?")
    tab.page.press("#dsa-text textarea", "Enter")
    tab.page.evaluate("document.getElementById('dsa-send').click()")
    second = serve(ScriptedService(scripted_llm()), port=port)
    tab.page.get_by_text("The server is back.").wait_for(timeout=30_000)
    tab.page.wait_for_selector(".answer")
    assert tab.answer().startswith("You said: word")
    assert tab.page.locator(".numbers").inner_text() in (
        "stopped",
        "the server stopped before this answer was complete",
    )
    tab.page.wait_for_function("document.querySelector('#dsa-text textarea')?.value === 'and now?'")
    assert tab.page.locator(".message").count() == 2 and not second.service.asked
    tab.page.press("#dsa-text textarea", "Enter")
    tab.page.wait_for_function("document.querySelectorAll('.answer').length === 2")
    tab.wait()
    assert tab.answer() == "You said: and now?" and len(second.service.asked) == 1
    tab.page.close()
    second.stop()
    tab.problems.clear()  # the browser's own lines about a server that does not answer


def test_the_page_says_that_the_server_is_back_whoever_loads_it_again(open_tab: Any) -> None:
    """gradio, too, loads the page again when it reaches the server."""
    tab = open_tab()
    tab.page.context.set_offline(True)
    tab.page.wait_for_selector("#dsa-away:visible")
    tab.page.context.set_offline(False)
    tab.page.reload()
    tab.page.get_by_text("The server is back.").wait_for()
    tab.problems.clear()  # the browser's own lines about a server that does not answer


def test_send_pressed_before_the_page_has_noticed(open_tab: Any) -> None:
    port = free_port()
    first = serve(ScriptedService(scripted_llm()), port=port)
    tab = open_tab(url=first.url)
    tab.ask("one")
    first.stop()
    tab.page.fill("#dsa-text textarea", "two")
    tab.page.click("#dsa-send", force=True)
    tab.page.wait_for_selector("#dsa-away:visible", timeout=30_000)
    second = serve(ScriptedService(scripted_llm()), port=port)
    tab.page.get_by_text("The server is back.").wait_for(timeout=30_000)
    tab.page.wait_for_function("document.querySelector('#dsa-text textarea')?.value === 'two'")
    tab.page.wait_for_selector(".answer")
    tab.page.click("#dsa-send")
    tab.page.wait_for_function("document.querySelectorAll('.answer').length === 2")
    tab.wait()
    assert tab.answer() == "You said: two" and tab.answer(0) == "You said: one"
    tab.page.close()
    second.stop()
    tab.problems.clear()
