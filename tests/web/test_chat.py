"""The chat in a real browser, with a scripted service."""

import json
import time
from typing import Any

import pytest

from deepseek_v32.inference.chat_app import answering


def test_send_streams_and_shows_numbers(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    scripted.service.pace, scripted.service.upto = 2 * answering.UPDATE_INTERVAL, 3
    tab.ask("Tell me something about the quick brown fox and the lazy dog, please.", wait=False)
    for shown, upto in (("You", 8), ("You said", 14), ("You said: Tell", None)):
        tab.page.wait_for_function(f"document.querySelector('.answer .body')?.innerText.trim() === '{shown}'")
        scripted.service.upto = upto
    scripted.service.pace = 0
    tab.wait()
    assert tab.answer() == "You said: Tell me something about the quick brown fox and the lazy dog, please."
    tab.page.click(".details summary")
    rates = tab.page.locator(".figures").inner_text()
    assert "first token" in rates and "tokens/s" in rates
    tab.page.click("#dsa-meter-box summary")
    meter = tab.page.locator("#dsa-meter").inner_text()
    assert "/ 32,768" in meter and "5 / 512" in meter
    assert tab.page.locator("#dsa-text textarea").input_value() == ""


def test_enter_sends_and_shift_enter_breaks_the_line(open_tab: Any) -> None:
    tab = open_tab()
    text = tab.page.locator("#dsa-text textarea")
    text.click()
    tab.page.keyboard.type("one")
    tab.page.keyboard.press("Shift+Enter")
    tab.page.keyboard.type("two")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(".answer")
    tab.wait()
    assert tab.question() == "one\ntwo"


def test_stop_keeps_what_came_and_frees_the_engine(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    scripted.service.pace = 0.03
    tab.ask("word " * 200, wait=False)
    tab.page.wait_for_function("document.querySelector('.answer .body')?.innerText.length > 20")
    scripted.service.pace = 0.5
    tab.page.click("#dsa-stop")
    tab.wait()
    assert 20 < len(tab.answer()) < 900
    assert "stopped" in tab.page.locator(".numbers").inner_text()
    assert scripted.service.open == 0
    scripted.service.pace = 0.004
    tab.ask("and now?")
    assert tab.answer() == "You said: and now?"


def test_reload_keeps_the_conversation_and_the_system_prompt(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    tab.page.click("#dsa-settings button")
    tab.page.fill("#dsa-system textarea", "Be brief.")
    tab.ask("remember **me**")
    assert "Be brief.remember" in scripted.service.asked[-1]
    tab.page.reload()
    tab.page.wait_for_selector(".answer")
    assert tab.answer() == "You said: remember me" and tab.question() == "remember **me**"
    tab.ask("again")
    assert "Be brief.remember" in scripted.service.asked[-1]
    assert "remember **me**" in scripted.service.asked[-1]


def test_an_answer_goes_on_after_a_reload_and_stops_without_a_page(
    open_tab: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = open_tab()
    scripted.service.pace, scripted.service.upto = 2 * answering.UPDATE_INTERVAL, 24
    tab.ask("word " * 60, wait=False)
    tab.page.wait_for_function("document.querySelector('.answer .body')?.innerText.length > 20")
    tab.page.reload()
    tab.page.wait_for_selector("body.dsa-running")
    scripted.service.pace, scripted.service.upto = 0, None
    tab.wait()
    assert tab.answer() == "You said: " + "word " * 59 + "word" and tab.page.locator(".numbers").inner_text() == ""
    # A conversation whose server has gone says so.
    tab.page.evaluate(
        """() => { for (const key of Object.keys(localStorage).filter((key) => key.includes("/conversation/"))) {
        const entry = JSON.parse(localStorage.getItem(key)); const last = entry.conversation.messages.at(-1);
        Object.assign(last, { finish: "", id: "gone" }); localStorage.setItem(key, JSON.stringify(entry)); } }"""
    )
    tab.page.goto("about:blank")
    other = open_tab(context=tab.page.context).page  # which does not show it
    other.wait_for_function('Object.values(localStorage).some((each) => each.includes(\'"finish":"lost"\'))')
    other.close()
    tab.open()
    tab.page.wait_for_selector(".answer")
    assert tab.page.locator(".numbers").inner_text() == "the server stopped before this answer was complete"
    # Another tab that has all of it gives it back.
    open_tab(context=tab.page.context).page.evaluate(
        """() => { for (const key of Object.keys(localStorage).filter((key) => key.includes("/conversation/"))) {
        const entry = JSON.parse(localStorage.getItem(key));
        Object.assign(entry.conversation.messages.at(-1), { finish: "stop", content: "all of it" });
        localStorage.setItem(key, JSON.stringify(entry)); } }"""
    )
    tab.page.wait_for_function("document.querySelector('.answer .body')?.innerText === 'all of it'")
    # Without a page an answer ends after a while.
    monkeypatch.setattr(answering, "GRACE", 0.5)
    scripted.service.pace = 0.05
    tab.ask("word " * 400, wait=False)
    tab.page.goto("about:blank")
    deadline = time.monotonic() + 60
    while scripted.service.open and time.monotonic() < deadline:
        time.sleep(0.1)
    assert scripted.service.open == 0


def test_several_conversations(open_tab: Any) -> None:
    tab = open_tab()
    tab.ask("alpha")
    tab.page.click("#dsa-new")
    assert tab.page.locator(".message").count() == 0
    tab.ask("beta")
    entries = tab.page.locator("#dsa-list .choose")
    assert entries.all_inner_texts() == ["beta", "alpha"]
    entries.nth(1).click()
    tab.page.wait_for_function("document.querySelector('.plain')?.innerText === 'alpha'")
    tab.page.click("#dsa-clear")
    assert tab.page.locator(".message").count() == 0
    assert tab.page.locator("#dsa-list .choose").all_inner_texts() == ["beta"]


def test_an_answer_goes_on_behind_another_conversation(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    scripted.service.pace = 0.02
    tab.ask("slow " * 20, wait=False)
    tab.page.click("#dsa-new")
    tab.page.wait_for_timeout(400)
    assert tab.page.locator(".message").count() == 0, "the other conversation's answer broke in"
    tab.page.wait_for_function(
        "Object.values(localStorage).some(text => text.includes('\"finish\":\"stop\"') && text.includes('slow'))"
    )
    tab.page.locator("#dsa-list .choose").nth(0).click()
    tab.page.wait_for_selector(".answer")
    assert tab.answer().endswith("slow slow slow")


def test_thinking_unfolds_folds_and_shows_its_time(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    scripted.service.upto = 1
    tab.page.check("#dsa-thinking input")
    tab.ask("why?", wait=False)
    tab.page.wait_for_selector("details.thought[open]")
    assert "Thinking" in tab.page.locator(".thought summary").inner_text()
    scripted.service.upto = None
    tab.wait()
    assert tab.page.locator("details.thought[open]").count() == 0
    assert tab.page.locator(".thought summary").inner_text().startswith("Thought for ")
    assert tab.answer() == "You said: why?"
    tab.page.click(".thought summary")
    assert "First I look at the question." in tab.page.locator(".thought .prose-text").inner_text()


def test_export_and_import(open_tab: Any, tmp_path: Any) -> None:
    tab = open_tab()
    tab.ask("take me along")
    with tab.page.expect_download() as download:
        tab.page.click("#dsa-export")
    path = tmp_path / "conversation.json"
    download.value.save_as(path)
    exported = json.loads(path.read_text())
    assert [m["content"] for m in exported["messages"]] == ["take me along", "You said: take me along"]
    other = open_tab()
    other.page.set_input_files("#dsa-import-file", path)
    other.page.wait_for_selector(".answer")
    assert other.answer() == "You said: take me along"
    (tmp_path / "bad.json").write_text('{"messages": [{"role": "robot"}]}')
    other.page.set_input_files("#dsa-import-file", tmp_path / "bad.json")
    other.page.get_by_text("expected a message of role user or assistant").wait_for()
    (tmp_path / "worse.json").write_text("no json")
    other.page.set_input_files("#dsa-import-file", tmp_path / "worse.json")
    other.page.get_by_text("holds no conversation").wait_for()
    assert other.answer() == "You said: take me along"


def test_dropped_files_are_counted_and_sent(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    transfer = tab.page.evaluate_handle(
        """() => { const data = new DataTransfer();
        data.items.add(new File(["The secret word is xylophone."], "notes.txt", {type: "text/plain"}));
        data.items.add(new File([new Uint8Array([0, 1, 2, 255])], "picture.bin")); return data; }"""
    )
    tab.page.dispatch_event("#dsa-composer", "drop", {"dataTransfer": transfer})
    tab.page.wait_for_selector("#dsa-files .file:has-text('tokens')")
    tokens = len(scripted.service.llm.tokenizer.encode("The secret word is xylophone."))
    assert tab.page.locator("#dsa-files .file").all_inner_texts() == [f"notes.txt · {tokens} tokens\n×"]
    tab.page.get_by_text("I can only read text files").wait_for()
    tab.ask("What is it?")
    assert "notes.txt" in tab.page.locator(".user .file").inner_text()
    prompt = scripted.service.asked[-1]
    assert "[file name]: notes.txt" in prompt and "xylophone" in prompt
    assert tab.page.locator("#dsa-files .file").count() == 0


def test_examples_ask_their_question(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    scripted.service.pace = 0
    tab.page.get_by_text("Find one line in a pasted text").click()
    tab.page.wait_for_selector(".answer")
    tab.wait()
    assert "Daniel" in scripted.service.asked[-1]
    assert tab.page.locator(".plain.folded").count() == 1


def test_two_tabs_at_once_do_not_mix(open_tab: Any, scripted: Any) -> None:
    first = open_tab()
    second = open_tab(context=first.page.context)
    scripted.service.pace = 0.02
    first.ask("apples " * 12, wait=False)
    second.ask("pears " * 12, wait=False)
    first.wait()
    second.wait()
    for tab, mine, other in ((first, "apples", "pears"), (second, "pears", "apples")):
        assert tab.page.locator(".message").count() == 2
        text = tab.page.locator(".messages").inner_text()
        assert mine in text and other not in text
    first.page.reload()
    first.page.wait_for_selector(".answer")
    assert "apples" in first.answer() and "pears" not in first.answer()
    assert first.page.locator("#dsa-list .choose").count() == 2, "one tab's conversation replaced the other's"


@pytest.mark.parametrize("question", ["fail this", "refuse this"])
def test_errors_are_shown_without_details(open_tab: Any, question: str) -> None:
    tab = open_tab()
    tab.ask(question)
    shown = tab.page.locator(".problem:visible").inner_text()
    assert shown in (
        "Something went wrong while this answer was computed. The server's log says what.",
        "the prompt is refused",
    )
    assert "Traceback" not in tab.page.content() and "passwd" not in tab.page.content()
    tab.ask("and now?")
    assert tab.answer() == "You said: and now?"


def test_copy(open_tab: Any) -> None:
    tab = open_tab(permissions=["clipboard-read", "clipboard-write"])
    tab.ask("copy *me*")
    tab.page.click(".answer [data-action=copy]")
    tab.page.get_by_text("Copied").wait_for()
    assert tab.page.evaluate("navigator.clipboard.readText()") == "You said: copy *me*"


def test_settings_reach_the_engine(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    tab.page.click("#dsa-settings button")
    tab.page.get_by_label("Seed").fill("123")
    tab.ask("draw")
    assert scripted.service.seeds[-1] == 123
    tab.page.get_by_label("Seed").fill("a dog")
    tab.ask("draw")
    assert "expected a whole number" in tab.page.locator(".problem:visible").inner_text()
