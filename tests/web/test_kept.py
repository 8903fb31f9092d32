"""Nothing is lost unseen: deleting and asking again can be undone, two tabs keep each other's turns, a reload brings all back."""

from types import SimpleNamespace
from typing import Any

import pytest

from deepseek_v32.inference.chat_app import answering
from deepseek_v32.inference.chat_app.answering import GenerationSettings, Run, is_loop
from deepseek_v32.inference.chat_app.conversation import Message
from deepseek_v32.inference.completion import Delta
from deepseek_v32.inference.params import SamplingParams
from deepseek_v32.inference.recording import Recording


def test_asking_again_keeps_what_followed(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    scripted.service.pace = 0
    page = tab.page
    for text in ("first", "second", "third"):
        tab.ask(text)

    def texts() -> list[str]:
        return page.locator(".user .content").all_inner_texts()

    def branches() -> list[str]:
        return [text.replace("\n", "") for text in page.locator(".branches:visible").all_inner_texts()]

    def edit(index: int, text: str) -> None:
        page.locator(".message.user").nth(index).hover()
        page.locator(".user [data-action=edit]").nth(index).click()
        page.fill("textarea.edit", text)
        page.press("textarea.edit", "Enter")
        page.wait_for_function(
            "(text) => [...document.querySelectorAll('.answer .body')].at(-1)?.innerText === 'You said: ' + text",
            arg=text,
        )
        tab.wait()

    edit(0, "other")
    assert texts() == ["other"]
    page.click("#dsa-notice button")  # undo
    page.wait_for_function("document.querySelectorAll('.answer').length === 3")
    assert texts() == ["first", "second", "third"]
    page.wait_for_selector(".branches:visible")
    assert branches() == ["‹1/2›"]
    page.locator(".step", has_text="›").first.click()
    page.wait_for_function("document.querySelectorAll('.answer').length === 1")
    assert texts() == ["other"] and tab.answer() == "You said: other"
    tab.ask("later")
    page.locator(".step", has_text="‹").first.click()
    page.wait_for_function("document.querySelectorAll('.answer').length === 3")
    # Retry of an earlier answer, stopped at once by undo; a reload keeps all branches.
    scripted.service.pace = 0.5
    page.locator(".answer [data-action=retry]").nth(1).click()
    page.wait_for_selector("body.dsa-running")
    page.click("#dsa-notice button")
    page.locator(".branches:visible").nth(1).wait_for()  # the retry, with two answers, has been shown
    page.wait_for_function("document.querySelectorAll('.answer').length === 3")
    assert texts() == ["first", "second", "third"]
    page.reload()
    page.wait_for_selector(".answer")
    page.wait_for_selector(".branches:visible")
    assert branches() == ["‹1/2›", "‹1/2›"]
    page.locator(".step:visible", has_text="›").first.click()
    page.wait_for_function("document.querySelectorAll('.answer').length === 2")
    assert texts() == ["other", "later"]
    # A reload, another branch and another conversation keep what is typed in an edit. Escape leaves it.
    page.locator(".message.user").nth(0).hover()
    page.locator(".user [data-action=edit]").nth(0).click()
    page.fill("textarea.edit", "half a thought")
    page.reload()
    page.wait_for_selector("textarea.edit")
    page.locator(".step:visible", has_text="‹").first.click()
    page.wait_for_selector("textarea.edit", state="detached")
    page.locator(".step:visible", has_text="›").first.click()
    page.wait_for_selector("textarea.edit")
    page.click("#dsa-new")
    page.locator("#dsa-list .choose").click()
    page.wait_for_selector("textarea.edit")
    assert page.locator("textarea.edit").input_value() == "half a thought"
    page.press("textarea.edit", "Escape")
    page.reload()
    page.wait_for_selector(".answer")
    assert page.locator("textarea.edit").count() == 0 and texts() == ["other", "later"]


def test_nothing_is_asked_without_a_question(open_tab: Any, scripted: Any) -> None:
    """A blank message, or a question whose text was taken out; the next one is asked as usual."""
    tab = open_tab()
    tab.page.fill("#dsa-text textarea", "  ")
    tab.page.press("#dsa-text textarea", "Enter")
    tab.page.click("#dsa-send")
    tab.ask("Hello")
    tab.page.hover(".message.user")
    tab.page.click("[data-action=edit]")
    tab.page.fill(".edit", " ")
    tab.page.press(".edit", "Enter")
    tab.page.press(".edit", "Escape")
    assert tab.page.evaluate("document.activeElement.dataset.action") == "edit"
    tab.ask("And you?")
    assert tab.page.locator(".message").count() == 4 and tab.page.locator(".step:visible").count() == 0


def test_the_list_of_chats_is_steady(open_tab: Any, scripted: Any) -> None:
    """Opening a chat leaves its place, an answer that grows leaves the entries, and Undo brings back all that went."""
    tab = open_tab()
    for text in ("One", "Two", "Three"):
        tab.page.click("#dsa-new")
        tab.ask(text)
    entries = tab.page.locator("#dsa-list .choose")
    entries.nth(2).click()
    tab.page.wait_for_function("document.querySelector('.user .plain')?.innerText === 'One'")
    assert entries.all_inner_texts() == ["Three", "Two", "One"]
    tab.page.reload()
    tab.page.wait_for_selector(".user .plain")
    assert entries.all_inner_texts() == ["Three", "Two", "One"]
    entries.nth(0).click()
    tab.page.wait_for_function("document.querySelector('.user .plain')?.innerText === 'Three'")
    scripted.service.pace = 0.1
    tab.ask("Four", wait=False)
    tab.page.wait_for_function("document.querySelectorAll('.answer .body')[1]?.innerText")
    first = entries.nth(0).element_handle()
    tab.wait()
    assert first.evaluate("(entry) => entry.isConnected")
    for _ in range(2):
        tab.page.locator("#dsa-list .remove").nth(1).click(force=True)
    tab.page.click("#dsa-notice button")
    assert sorted(entries.all_inner_texts()) == ["One", "Three", "Two"]


def test_prepared_answers_are_whole(open_tab: Any) -> None:
    tab = open_tab()
    tab.page.locator(".example").first.click()
    tab.page.wait_for_selector(".answer")
    tab.wait()
    tab.page.reload()
    tab.page.wait_for_selector(".answer")
    assert "the server stopped" not in tab.page.inner_text(".messages")


def test_two_tabs_with_one_chat_lose_no_turn(open_tab: Any, scripted: Any) -> None:
    first = open_tab()
    scripted.service.pace = 0
    first.ask("start")
    second = open_tab(context=first.page.context)
    second.page.locator("#dsa-list .choose").click()
    second.page.wait_for_selector(".answer")
    first.ask("from the first")
    second.page.wait_for_function("document.querySelectorAll('.answer').length === 2")  # it follows
    second.ask("from the second")
    first.page.wait_for_function("document.querySelectorAll('.answer').length === 3")
    # Both at once: one tab's turn is the other's branch.
    scripted.service.held = "both"
    first.ask("left both", wait=False)
    second.ask("right both", wait=False)
    scripted.service.held = None
    first.wait()
    second.wait()
    for tab, mine in ((first, "left"), (second, "right")):
        tab.page.wait_for_selector(".branches:visible")
        assert mine in tab.question() and tab.page.locator(".message").count() == 8
    first.page.reload()
    first.page.wait_for_selector(".branches:visible")
    seen = {first.question().split()[0]}
    first.page.locator(".step:visible").first.click()
    first.page.wait_for_function(
        "(seen) => !document.querySelector('.messages').innerText.includes(seen)", arg=seen.copy().pop()
    )
    seen.add(first.question().split()[0])
    assert seen == {"left", "right"}


def test_the_end_of_an_answer_may_be_its_only_view(open_tab: Any, monkeypatch: Any) -> None:
    """Views that come too fast are left out, even all but the last one."""
    follow = Run.follow
    monkeypatch.setattr(Run, "follow", lambda run: iter(list(follow(run))[-1:]))
    tab = open_tab()
    page = tab.page
    tab.ask("first")
    assert page.locator("#dsa-text textarea").input_value() == ""
    page.locator(".message.user").hover()
    page.locator(".user [data-action=edit]").click()
    page.fill("textarea.edit", "other")
    page.press("textarea.edit", "Enter")
    page.wait_for_function("document.querySelector('.answer .body')?.innerText === 'You said: other'")
    page.locator(".step", has_text="‹").click()
    page.wait_for_function("document.querySelector('.answer .body')?.innerText === 'You said: first'")
    assert page.locator("textarea.edit").count() == 0
    # The inspector and screen readers get that answer, too.
    page.click("#dsa-inspect")
    tab.ask("second")
    page.wait_for_function("document.querySelector('.dsa-context')?.innerText.includes('second')")
    assert page.locator("#dsa-announce").inner_text() == "The model said: You said: second"


def test_a_reload_keeps_settings_draft_and_inspector(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    scripted.service.pace = 0
    page = tab.page
    tab.ask("before")
    page.click("#dsa-settings button")
    page.fill("#dsa-system textarea", "Be kind.")
    page.get_by_label("Temperature").last.fill("0.5")
    page.get_by_label("Seed").fill("77")
    page.check("#dsa-thinking input")
    page.fill("#dsa-text textarea", "half a thought")
    page.set_input_files("#dsa-attach-file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"text of a file"})
    page.wait_for_selector("#dsa-files .file")
    page.click("#dsa-inspect")
    page.wait_for_function("/^.true.*77/.test(localStorage['deepseek-v32/settings'])")
    page.reload()
    page.wait_for_function("document.querySelector('#dsa-text textarea')?.value === 'half a thought'")
    assert page.locator("#dsa-thinking input").is_checked()
    assert page.locator("#dsa-inspector").is_visible()
    assert page.locator("#dsa-files .file").count() == 1
    page.wait_for_selector(".answer")
    page.click("#dsa-send")
    page.wait_for_function("document.querySelectorAll('.answer').length === 2")
    tab.wait()
    assert scripted.service.seeds[-1] == 77 and scripted.service.temperatures[-1] == 0.5
    prompt = scripted.service.asked[-1]
    assert "Be kind." in prompt and "text of a file" in prompt and prompt.endswith("half a thought<think>")


def test_a_slow_server_takes_nothing_that_was_typed(open_tab: Any, scripted: Any) -> None:
    """Text written while the page comes up stays. A conversation that is still on its way gets no question meant for it."""
    scripted.service.pace = 0
    first = open_tab()
    first.ask("start")
    page = first.page.context.new_page()
    waiting: list[Any] = []
    page.route("**/gradio_api/run/**", lambda route: waiting.append(route))

    def answer_all() -> None:
        page.wait_for_timeout(300)
        while waiting:
            waiting.pop().continue_()
        page.wait_for_timeout(300)

    tab = type(first)(page, first.url).open()
    page.fill("#dsa-text textarea", "typed early")
    answer_all()
    assert page.locator("#dsa-text textarea").input_value() == "typed early"
    asked = len(scripted.service.asked)
    page.locator("#dsa-list .choose").click()
    page.press("#dsa-text textarea", "Enter")
    while not waiting:
        page.wait_for_timeout(20)
    answer_all()
    page.wait_for_selector(".answer")
    assert len(scripted.service.asked) == asked
    assert page.locator("#dsa-text textarea").input_value() == "typed early"
    page.click("#dsa-send")
    page.wait_for_function("document.querySelectorAll('.answer').length === 2")
    tab.wait()
    assert "start" in scripted.service.asked[-1]


def test_the_inspector_stays_on_the_answer_that_was_opened(open_tab: Any, scripted: Any) -> None:
    """Across reloads, other tabs' turns and closed conversations; a new answer of this tab takes its place."""
    scripted.service.pace = 0
    tab = open_tab()
    page = tab.page
    for text in ("first", "second", "third"):
        tab.ask(text + " word" * 30)

    def opened() -> str:
        page.wait_for_selector(".message.inspected")
        shown = page.locator(".dsa-context p").first.inner_text().split()[1]
        marked = page.locator(".message.inspected .body").inner_text().split()[2]
        return shown if shown == marked else f"{shown}, but {marked} is marked"

    page.locator(".answer [data-action=inspect]").nth(1).click()
    assert opened() == "second"
    for _ in range(2):
        page.reload()
        page.wait_for_selector(".answer")
        assert opened() == "second"
    other = open_tab(context=page.context)
    other.page.locator("#dsa-list .choose").click()
    other.page.wait_for_selector(".answer")
    other.ask("fourth" + " word" * 30)
    page.wait_for_function("document.querySelectorAll('.answer').length === 4")
    assert opened() == "second"
    # While the next answer is written, a reload keeps it, too. Then the new one is shown.
    scripted.service.pace = 0.5
    tab.ask("fifth" + " word" * 30, wait=False)
    page.reload()
    page.wait_for_selector("body.dsa-running")
    assert opened() == "second"
    scripted.service.pace = 0
    tab.wait()
    page.wait_for_function("document.querySelector('.dsa-context')?.innerText.includes('fifth')")
    assert opened() == "fifth"
    # Closed and opened again, it shows the newest.
    page.locator(".answer [data-action=inspect]").nth(0).click()
    page.wait_for_function("document.querySelector('.dsa-context')?.innerText.includes('first')")
    page.click("#dsa-inspect-close")
    page.click("#dsa-inspect")
    page.wait_for_function("document.querySelector('.dsa-context')?.innerText.includes('fifth')")


def test_a_loop_is_eight_tokens_or_more_three_times() -> None:
    block = list(range(8))
    assert is_loop([99, *block * 3]) and not is_loop([*block * 2, 3]) and not is_loop([*block * 2, *block[:7], 9])
    assert is_loop([5] * 24) and not is_loop([5] * 23)
    assert is_loop([*range(21)] * 3) and not is_loop([1, 2, 3] * 7)


@pytest.mark.parametrize("tokens", [0, 2])
def test_what_is_said_of_an_answer_begins_with_its_first_token(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that is read for 17 s is no thought, and of an answer without a token no share was read."""
    now = 100.0
    monkeypatch.setattr(answering, "time", SimpleNamespace(perf_counter=lambda: now))
    message = Message("assistant", "", "a")
    settings = GenerationSettings(SamplingParams(), True, (), False, "a model")
    writer = answering._MessageWriter(message, settings, Recording([1, 2], 2, 4))
    for number in range(tokens):
        now = 117.0 + 2 * number
        writer.push(Delta(1, text=("Hm.", "</think>Yes")[number], token_ids=(number,)))
    timings = SimpleNamespace(drafted_tokens=0, selected_fraction=1.0, tokens_per_second=None)
    ended: Any = SimpleNamespace(
        finish_reason="abort", usage=SimpleNamespace(cached_tokens=0), timings=timings, error=None
    )
    writer.push(Delta(1, completion=ended))
    writer.finish(stopped=True)
    assert (message.numbers.get("thinking_seconds"), message.numbers.get("kept_share")) == (
        (2.0, 1.0) if tokens else (None, None)
    )
