"""A server that answers late, out of order or not at all: nothing is lost, asked twice, or shown where it does not belong."""

import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from deepseek_v32.inference.chat_app import answering
from support.chat_server import CALL

WORDS = " word" * 30


class Slow:
    """Holds back a tab's calls of the server whose path and body match `kind`, until they are answered."""

    def __init__(self, tab: Any, kind: str = "restore|join") -> None:
        self.tab, self.held = tab, list[Any]()
        self.kind = re.compile(kind)
        tab.page.route(re.compile(r"/gradio_api/(run/predict|queue/join|component_server)"), self._hold)

    def _hold(self, route: Any) -> None:
        body = route.request.post_data
        name = "restore" if '"ticket":' in body else f"{route.request.url} {body}"
        self.held.append(route) if self.kind.search(name) else route.continue_()

    def wait(self, count: int = 1) -> None:
        self.until(lambda: len(self.held) >= count)

    def until(self, is_true: Callable[[], Any]) -> None:
        end = time.monotonic() + 15
        while not is_true():
            assert time.monotonic() < end
            self.tab.page.wait_for_timeout(20)

    def answer(self, *order: int) -> None:
        """Let these of the held calls through, by default all in turn."""
        self.wait()
        held, self.held = self.held, []
        for index in order or range(len(held)):
            with self.tab.page.expect_response(lambda r, call=held[index].request: r.request == call):
                held[index].continue_()
            self.tab.page.wait_for_timeout(50)

    def refuse(self, says: str = "The server could not do this. Try again.") -> None:
        """Answer 500, until the page says this, and from now on hold nothing back."""
        self.wait()
        self.kind = re.compile("(?!)")
        for route in self.held:
            route.fulfill(status=500, body="{}", content_type="application/json")
        self.held.clear()
        self.tab.page.get_by_text(says, exact=True).wait_for()


@pytest.fixture
def tab(open_tab: Any, scripted: Any) -> Any:
    made = open_tab()
    scripted.service.pace = 0
    yield made
    # The browser's own lines about the answers that the test refused.
    made.problems[:] = [each for each in made.problems if "Failed to load resource" not in each]


def attach(tab: Any, name: str) -> None:
    file = {"name": name, "mimeType": "text/plain", "buffer": f"text of {name}".encode()}
    tab.page.set_input_files("#dsa-attach-file", file)
    tab.page.wait_for_selector(f"#dsa-files .file:has-text('{name}')")


def typed(tab: Any) -> str:
    return tab.page.locator("#dsa-text textarea").input_value()


def answers(tab: Any, count: int) -> None:
    tab.page.wait_for_function("n => document.querySelectorAll('.answer').length === n", arg=count)
    tab.wait()


def choose(tab: Any, title: str) -> None:
    tab.page.locator("#dsa-list .choose", has_text=title).click()


def is_asked(scripted: Any, text: str) -> int:
    return sum(prompt.count(text) for prompt in scripted.service.asked)


@pytest.mark.parametrize("replaces", [False, True], ids=["appended", "replaced"])
def test_a_question_is_sent_once_and_takes_only_itself_from_the_box(tab: Any, scripted: Any, replaces: bool) -> None:
    """What is typed or added meanwhile stays for the next question, with a file that is not counted yet."""
    slow = Slow(tab, "join|count_tokens")
    attach(tab, "first.txt")
    question = f"once only {replaces}"
    tab.page.fill("#dsa-text textarea", question)
    tab.page.dblclick("#dsa-send")  # the second click is on Stop
    slow.until(lambda: any("join" in each.request.url for each in slow.held))
    tab.page.wait_for_timeout(900)
    tab.page.press("#dsa-text textarea", "Enter")
    tab.page.evaluate("document.getElementById('dsa-send').click()")
    if replaces:
        tab.page.press("#dsa-text textarea", "Control+a")
    tab.page.locator("#dsa-text textarea").press_sequentially(f"{question}, then" if replaces else " and then")
    rest = f"{question}, then" if replaces else "and then"
    attach(tab, "second.txt")
    slow.until(lambda: len(slow.held) >= 3)
    slow.answer()
    answers(tab, 1)
    assert is_asked(scripted, question) == 1 and "text of first.txt" in scripted.service.asked[-1]
    tab.page.wait_for_function("rest => document.querySelector('#dsa-text textarea').value === rest", arg=rest)
    assert "second.txt · " in tab.page.locator("#dsa-files").inner_text()
    assert tab.page.locator("#dsa-files .file").count() == 1
    tab.page.click("#dsa-send")
    slow.answer()
    answers(tab, 2)
    assert "text of second.txt" in scripted.service.asked[-1] and typed(tab) == ""


@pytest.mark.parametrize("then", ["another", "new", "same", "deleted", "imported"])
def test_a_conversation_that_comes_late_replaces_nothing(tab: Any, then: str) -> None:
    """After another one was opened, or a new one begun; a system prompt that was written meanwhile stays."""
    tab.ask("alpha")
    tab.page.click("#dsa-new")
    tab.ask("beta")
    tab.page.click("#dsa-settings button")
    slow = Slow(tab)
    if then == "imported":
        file = b'{"title": "gamma", "messages": [{"role": "assistant", "content": "I begin."}]}'
        file = {"name": "gamma.json", "mimeType": "application/json", "buffer": file}
        tab.page.set_input_files("#dsa-import-file", file)
    else:
        choose(tab, "alpha" if then != "same" else "beta")
    slow.wait()
    tab.page.fill("#dsa-system textarea", "Be kind.")
    if then == "another":
        choose(tab, "beta")
        slow.wait(2)
        tab.page.fill("#dsa-system textarea", "Be kind.")
        slow.answer(1, 0)
    elif then == "imported":
        tab.page.click("#dsa-new")
        slow.answer()
        slow.kind = re.compile("(?!)")
        choose(tab, "gamma")
        tab.page.click(".answer [data-action=retry]")
        tab.page.get_by_text("There is no question before this answer.").wait_for()
        tab.page.click("#dsa-new")
    elif then in ("new", "deleted"):
        row = tab.page.locator("#dsa-list .entry", has_text="alpha")
        row.hover()
        tab.page.click("#dsa-new") if then == "new" else row.locator(".remove").click()
        slow.answer()
        assert row.count() == (then == "new")
    else:
        slow.answer()
    tab.page.wait_for_timeout(200)
    assert tab.page.locator(".user .plain").all_inner_texts() == (["beta"] if then in ("another", "same") else [])
    assert tab.page.locator("#dsa-system textarea").input_value() == ("" if then == "imported" else "Be kind.")
    slow.kind = re.compile("(?!)")
    tab.ask("more")
    assert tab.answer() == "You said: more"


@pytest.mark.parametrize("event", ["send", "edit", "example", "restore", "resume", "header"])
def test_what_the_server_refuses_can_be_done_again(tab: Any, scripted: Any, event: str) -> None:
    page = tab.page
    tab.ask("before" + WORDS)
    kinds = {"restore": "restore", "resume": "join", "header": "header"}
    if event == "send":
        slow = Slow(tab)
        page.fill("#dsa-text textarea", "again")
        page.click("#dsa-send")
        slow.refuse()
        assert typed(tab) == "again"
        page.click("#dsa-send")
        answers(tab, 2)
    elif event == "edit":
        slow = Slow(tab)
        page.hover(".message.user")
        page.click(".user [data-action=edit]")
        page.fill("textarea.edit", "changed")
        page.press("textarea.edit", "Enter")
        slow.refuse()
        assert page.locator("textarea.edit").input_value() == "changed"
        page.press("textarea.edit", "Enter")
        page.wait_for_function("document.querySelector('.answer .body')?.innerText === 'You said: changed'")
        assert page.locator("textarea.edit").count() == 0 and tab.question() == "changed"
    elif event == "example":
        page.click("#dsa-new")
        slow = Slow(tab)
        page.locator(".example").last.click()
        page.locator(".example").first.click(force=True)
        slow.refuse()
        page.locator(".example").last.click()
        answers(tab, 1)
        assert page.locator("#dsa-list .choose").count() == 2
    elif event == "restore":
        page.click("#dsa-new")
        slow = Slow(tab)
        choose(tab, "before")
        slow.refuse()
        tab.ask("in the new one")
        assert "before" not in scripted.service.asked[-1]
        choose(tab, "before")
        page.wait_for_function("document.querySelector('.user .plain')?.innerText.startsWith('before')")
    elif event == "resume":
        scripted.service.held = "slowly"
        tab.ask("slowly", wait=False)
        slow = Slow(tab, kinds[event])
        page.reload()
        slow.refuse()
        scripted.service.held = None
        tab.wait()
        assert tab.answer() == "You said: slowly"
    else:
        slow = Slow(tab, '"header"|"count_tokens"')
        page.click(".answer [data-action=inspect]")
        attach(tab, "a.txt")
        slow.wait(2)
        slow.refuse("Can't reach the server. Try again.")
        page.click("#dsa-inspect-close")
        page.click(".answer [data-action=inspect]")
        page.wait_for_selector(".dsa-context")
        assert page.locator("#dsa-files .file").inner_text().startswith("a.txt")
    assert page.locator("body.dsa-running").count() == 0


@pytest.mark.parametrize("event", ["send", "edit", "retry", "example", "restore", "answer"])
def test_stop_ends_the_wait_for_a_reply(tab: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    """Nothing changes, and the conversation goes on. What comes late is stopped and kept, and blocks nothing."""
    page = tab.page
    tab.ask("before")
    scripted.service.held = "silent" if event in ("send", "answer") else "changed" if event == "edit" else None
    slow = Slow(tab, "(?!)" if event == "answer" else "restore|join")
    if event in ("send", "answer"):
        page.fill("#dsa-text textarea", "silent")
        page.click("#dsa-send")
    elif event == "edit":
        page.hover(".message.user")
        page.click(".user [data-action=edit]")
        page.fill("textarea.edit", "changed")
        page.press("textarea.edit", "Enter")
    elif event == "retry":
        page.click(".answer [data-action=retry]")
    else:
        page.click("#dsa-new")
        page.click(".example >> nth=-1") if event == "example" else choose(tab, "before")
    if event == "answer":  # the server does not end it
        answering_stops = scripted.service.cancel
        monkeypatch.setattr(scripted.service, "cancel", lambda request_id: None)
        page.wait_for_selector(".answer.waiting")
        page.click("#dsa-stop")
        page.keyboard.press("Escape")
        monkeypatch.setattr(scripted.service, "cancel", answering_stops)
    else:
        slow.wait()
        slow.kind = re.compile("(?!)")
        page.keyboard.press("Escape") if event == "restore" else page.click("#dsa-stop")
    page.wait_for_selector("body:not(.dsa-running)")
    assert typed(tab) == ("silent" if event == "send" else "")
    assert page.locator("textarea.edit").count() == (event == "edit")
    if event == "edit":
        assert page.locator("textarea.edit").input_value() == "changed"
    tab.ask("after")
    assert tab.answer() == "You said: after"
    if event == "answer":
        assert page.locator(".numbers").nth(1).inner_text() == "stopped"
        scripted.service.held = None
    else:
        slow.answer()
    slow.until(lambda: not scripted.service.open)
    if event in ("send", "edit", "retry"):
        page.wait_for_selector(".branches:visible")
    assert tab.answer() == "You said: after" and page.locator("body.dsa-running").count() == 0
    tab.ask("once more")
    assert tab.answer() == "You said: once more"


def test_a_deleted_conversation_stays_deleted(tab: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its answer, which the page has given up, ends later."""
    page = tab.page
    scripted.service.held = "silent"
    monkeypatch.setattr(scripted.service, "cancel", lambda request_id: None)
    tab.ask("silent", wait=False)
    page.click("#dsa-stop")
    page.keyboard.press("Escape")
    page.wait_for_selector("body:not(.dsa-running)")
    page.click("#dsa-clear")
    scripted.service.held = None
    page.wait_for_timeout(700)
    assert page.locator("#dsa-list .choose").count() == 0 and not scripted.service.open
    page.click("#dsa-notice button")  # undo
    page.wait_for_selector(".answer")
    assert page.locator("#dsa-list .choose").count() == 1


def test_an_answer_that_grows_elsewhere_hinders_nothing(tab: Any, scripted: Any) -> None:
    """Another conversation retries meanwhile. The growing one cannot be deleted, and a late view does not replace its last."""
    page = tab.page
    tab.ask("alpha")
    scripted.service.held = "alpha"
    page.click(".answer [data-action=retry]")
    page.wait_for_selector("body.dsa-running")
    page.click("#dsa-new")
    tab.ask("beta")
    page.click(".answer [data-action=retry]")
    page.wait_for_selector(".branches:visible")
    tab.wait()
    assert "beta" in scripted.service.asked[-1]
    choose(tab, "alpha")
    page.wait_for_selector("body.dsa-running")
    tab.page.click("#dsa-new")
    row = page.locator("#dsa-list .entry", has_text="alpha")
    row.hover()
    row.locator(".remove").click()
    assert row.count() == 1
    slow = Slow(tab)
    choose(tab, "alpha")
    slow.wait()
    response = slow.held[0].fetch()  # what the server says now, delivered after the answer's end
    scripted.service.held = None
    page.wait_for_selector(".answer")
    tab.wait()
    slow.held[0].fulfill(response=response)
    page.wait_for_timeout(200)
    assert tab.answer() == "You said: alpha" and page.locator("body.dsa-running").count() == 0
    assert scripted.service.open == 0
    # A reload in another conversation does not end it.
    slow.kind = re.compile("(?!)")
    scripted.service.held = "gamma"
    tab.ask("gamma", wait=False)
    page.click("#dsa-new")
    page.reload()
    page.wait_for_selector("body.dsa-ready")
    page.wait_for_timeout(300)
    scripted.service.held = None
    saved = "Object.values(localStorage).some((each) => /You said: gamma[^{}]*[{][^{}]*[}],.finish.:.stop/.test(each))"
    page.wait_for_function(saved)
    assert page.locator(".message").count() == 0


def test_an_answer_that_ends_while_another_conversation_is_loaded(tab: Any, scripted: Any) -> None:
    """The other one does not come. The answer is shown and saved with its end, in branches, too."""
    page = tab.page
    tab.ask("alpha")
    page.click("#dsa-new")
    scripted.service.held = "beta"
    tab.ask("beta", wait=False)
    page.wait_for_selector(".answer.waiting")
    slow = Slow(tab, "restore")
    choose(tab, "alpha")
    slow.wait()
    scripted.service.held = None
    page.wait_for_function("Object.values(localStorage).some((each) => /You said: beta.*.finish.:.stop/.test(each))")
    slow.refuse()
    assert tab.answer() == "You said: beta" and page.locator("body.dsa-running").count() == 0
    page.click(".answer [data-action=retry]")
    page.wait_for_selector(".branches:visible")
    tab.wait()
    ends = "Object.values(localStorage).join().match(/.finish.:.stop/g).length"
    page.wait_for_function(f"{ends} === 3")


@pytest.mark.parametrize("stays", [True, False], ids=["here", "elsewhere"])
def test_undo_before_the_server_has_answered(tab: Any, scripted: Any, stays: bool) -> None:
    page = tab.page
    for text in ("first", "second"):
        tab.ask(text)
    slow = Slow(tab)
    scripted.service.pace = 0.2
    page.locator(".answer [data-action=retry]").first.click()
    slow.wait()
    if not stays:
        page.click("#dsa-new")
        tab.page.fill("#dsa-text textarea", "other" + WORDS)
        page.click("#dsa-send")
        slow.wait(2)
    page.click("#dsa-notice button")
    slow.kind = re.compile("(?!)")
    slow.answer()
    page.wait_for_selector(".branches:visible")
    answers(tab, 2)
    assert page.locator(".user .plain").all_inner_texts() == ["first", "second"]
    if not stays:
        scripted.service.pace = 0
        choose(tab, "other")
        page.wait_for_function(f"document.querySelector('.answer .body')?.innerText === 'You said: other{WORDS}'")


def test_the_panel_is_empty_in_a_new_chat(tab: Any, scripted: Any) -> None:
    """Though the answer that was opened before comes only then. While functions are called, an answer is not complete."""
    page = tab.page
    scripted.service.replies = {"weather?": CALL}
    scripted.service.pace = 0.015
    page.click("#dsa-settings button")
    page.get_by_role("checkbox", name="Weather").check()
    tab.ask("weather?", wait=False)
    page.evaluate(
        """() => { window.seen = false; const look = () => { if (!document.body.matches('.dsa-running')) return;
        window.seen ||= Boolean([...document.querySelectorAll('[data-action=inspect]')].find((e) => !e.hidden));
        requestAnimationFrame(look); }; look(); }"""
    )
    tab.wait()
    assert not page.evaluate("window.seen") and page.locator(".call").count() == 1
    slow = Slow(tab, '"header"')
    page.click(".answer [data-action=inspect]")
    slow.wait()
    page.click("#dsa-new")
    slow.answer()
    page.wait_for_timeout(100)
    assert page.locator(".panel-body > *").count() == 0


def test_an_answer_that_no_run_writes_any_more_gets_its_end_in_a_branch(scripted: Any) -> None:
    """Another tab's turns have made it a branch, and its own tab was reloaded or closed."""
    from deepseek_v32.inference.chat_app.handlers import Handlers

    handlers = Handlers(scripted.service, "scripted")
    answer = {"role": "assistant", "content": "half", "id": "known"}
    for run_id, ended in (("known", True), *((f"later {i}", True) for i in range(99)), ("grows", False)):
        run = answering.Run(set(), run_id, "c1")
        run.show({"conversation": {"messages": [{**answer, "content": "whole", "finish": "abort"}]}}, ended)
        handlers.runs.add(run)
    branches = [[answer], [{**answer, "id": "unknown"}], [{**answer, "id": "grows"}]]
    messages = [{"role": "user", "content": "q", "branches": branches}, {**answer, "finish": "stop"}]
    event: Any = SimpleNamespace(_data={"conversation": {"id": "c1", "messages": messages}})
    first, last = handlers.restore(event)["conversation"]["messages"]
    ends = [(each["content"], each.get("finish")) for [each] in first["branches"]]
    assert ends == [("whole", "abort"), ("half", "lost"), ("half", None)] and last["finish"] == "stop"


def test_closing_a_second_tab_ends_no_answer(
    open_tab: Any, tab: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "GRACE", 0.3)
    scripted.service.held = "two tabs"
    tab.ask("two tabs", wait=False)
    tab.page.wait_for_selector("#dsa-list .choose")
    other = open_tab(context=tab.page.context)
    choose(other, "two tabs")
    other.page.wait_for_selector("body.dsa-running")
    other.page.close()
    tab.page.wait_for_timeout(1500)
    scripted.service.held = None
    tab.wait()
    assert tab.answer() == "You said: two tabs"


def test_a_lost_connection_takes_nothing_that_was_typed(tab: Any, scripted: Any) -> None:
    """gradio notices it first, tells no changes any more, and loads the page again."""
    tab.ask("before")
    tab.page.route("**/queue/join*", lambda route: route.abort(), times=1)
    tab.page.fill("#dsa-text textarea", "on its way")
    tab.page.click("#dsa-send")
    with tab.page.expect_navigation():
        tab.page.fill("#dsa-text textarea", "typed since then")
    tab.page.wait_for_function("document.querySelector('#dsa-text textarea')?.value === 'typed since then'")
    tab.page.wait_for_selector(".answer")
    tab.page.click("#dsa-send")
    answers(tab, 2)
    assert "before" in scripted.service.asked[-1] and not is_asked(scripted, "on its way")
