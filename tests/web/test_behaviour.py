"""A visitor's first minutes with the demo: what the page promises, walked through at three sizes.

Tests of single parts look closer, at one size. A server that is killed, long prompts and refused inputs are in test_limits.py.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deepseek_v32.inference.text.detokenizer import token_texts
from deepseek_v32.model.demo import NAME as DEMO_NAME
from support.chat_server import CALL, NEEDLE, TOPK, ChatServer, ScriptedService, scripted_llm, serve

SIZES = {"desktop": (1440, 900), "tablet": (820, 1180), "phone": (390, 844)}
CODE = "The door code is 0042. What is the door code?"
VALUES = "007\n314159\n* 5\n__init__.py\n# Big 7\n*args\n$x_1$ < 2*3*4\nC:\\new\\_7\n1. 2. 3\n<b>&amp;7</b>\n[7](8)"
LINES = [f"Item {i}: the committee talked about lamp number {i} and came to no conclusion." for i in range(30)]
LONG = "\n".join([*LINES[:20], NEEDLE, *LINES[20:]]) + "\n\nWhat is the door code of the Tolmir Archive?"
FOUND = "The door code of the Tolmir Archive is 4815."
NUMBERS = " " + " ".join(map(str, range(30)))  # more than TOPK tokens, without a loop
SHADED = "[...(CSS.highlights.get('dsa-read-4') || [])].map(String).join('')"
ANY_SHADE = "[...CSS.highlights.values()].flatMap((each) => [...each]).map(String).join(' ')"


@pytest.fixture(scope="module")
def demo_page() -> Iterator[ChatServer]:
    pytest.importorskip("gradio", reason="gradio is not installed: pip install -e .[web]")
    server = serve(ScriptedService(scripted_llm(DEMO_NAME), pace=0), "mine")
    yield server
    server.stop()


@dataclass
class Visit:
    tab: Any
    service: Any
    touch: bool
    theme: str
    folder: Path

    @property
    def page(self) -> Any:
        return self.tab.page

    def press(self, selector: str) -> None:
        """Press a control of the page's left side, which is a drawer on small screens."""
        if not self.page.evaluate(
            "(s) => { const r = document.querySelector(s).getBoundingClientRect(); return r.left >= 0; }", selector
        ):
            self.page.click("#dsa-menu")
            self.page.wait_for_function("document.getElementById('dsa-side').getBoundingClientRect().x === 0")
        self.page.click(selector)

    def new(self) -> None:
        self.press("#dsa-new")
        assert self.page.locator(".message").count() == 0

    def answers(self, count: int) -> None:
        self.page.wait_for_function("n => document.querySelectorAll('.answer').length === n", arg=count)

    def is_visible(self, locator: Any) -> bool:
        return locator.evaluate("e => getComputedStyle(e).opacity") == "1"


@pytest.mark.heavy
@pytest.mark.parametrize(("size", "theme"), [("desktop", "dark"), ("tablet", "light"), ("phone", "dark")])
def test_the_first_minutes(open_tab: Any, demo_page: ChatServer, tmp_path: Path, size: str, theme: str) -> None:
    width, height = SIZES[size]
    touch = width < 1000
    viewport = {"width": width, "height": height}
    tab = open_tab(url=demo_page.url, viewport=viewport, has_touch=touch, is_mobile=touch, color_scheme=theme)
    visit = Visit(tab, demo_page.service, touch, theme, tmp_path)
    for behaves in (
        first_screen,
        answers_are_text,
        loops_and_marks_end,
        story_and_inspector,
        short_chats_say_so,
        nothing_is_lost,
        thinking_and_functions,
        progress_and_keys,
        reload_and_second_tab,
        server_goes_away,
    ):
        visit.service.pace, visit.service.reading = 0, ()
        behaves(visit)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, behaves.__name__


def first_screen(v: Visit) -> None:
    page = v.page
    assert page.locator(".welcome h2").inner_text() == "Tell me something. Then ask."
    assert page.locator(".brand span").text_content().startswith("demo model, 19 M parameters · mine")
    assert page.evaluate("document.body.classList.contains('dark')") == (v.theme == "dark")
    assert page.locator("details[open]").count() == 0, "figures are folded"
    box = page.get_by_role("textbox", name="Message")
    assert box.input_value() == CODE and box.evaluate("e => getComputedStyle(e).fontSize") == "16px"
    assert "brings a long example" in page.locator(".examples").inner_text()
    # On a phone, the focus would open the keyboard over the page.
    assert box.evaluate("e => e === document.activeElement") == (page.viewport_size["width"] > 800)


def answers_are_text(v: Visit) -> None:
    """The first question is there already; the demo is greedy and brief."""
    page = v.page
    v.service.replies = {CODE: "0042. You said: The door code is 0042.", "values?": VALUES}
    page.click("#dsa-send")
    v.answers(1)
    v.tab.wait()
    assert v.tab.answer() == v.service.replies[CODE]
    assert (v.service.temperatures[-1], v.service.lengths[-1]) == (0, 160)
    text = page.locator(".messages").inner_text()
    assert text.index("You said:") < text.index(CODE) < text.index("The model said:")
    assert page.locator("#dsa-announce").inner_text() == "The model said: " + v.tab.answer()
    v.tab.ask("values?")
    assert v.tab.answer() == VALUES
    tops = page.evaluate(
        "[...document.querySelectorAll('.message')].map((e) => e.getBoundingClientRect()).flatMap((r) => [r.top, r.bottom])"
    )
    assert tops[2] - tops[1] < tops[4] - tops[3], "an answer stands near its question"
    v.tab.ask("What fits? " + "long_word_without_any_break" * 20)
    screen = page.viewport_size
    for selector in ("#dsa-send", "#dsa-text textarea", "#dsa-meter-box", "#dsa-inspect", "#dsa-menu"):
        box = page.locator(selector).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= screen["width"] + 0.5
        assert box["y"] >= 0 and box["y"] + box["height"] <= screen["height"] + 0.5


def loops_and_marks_end(v: Visit) -> None:
    v.service.replies = {"loop": "It is " + "rm -rf " * 200, "marks": "It is</think> seven<think>."}
    v.tab.ask("loop")
    assert v.page.locator(".numbers").last.inner_text() == "stopped, because it repeated itself"
    assert len(v.tab.answer()) < 300
    v.tab.ask("marks")
    assert v.tab.answer() == "It is seven."


def story_and_inspector(v: Visit) -> None:
    page = v.page
    v.new()
    v.service.replies = {LONG: FOUND}
    v.tab.ask(LONG)
    line = page.locator(".read").inner_text()
    assert re.fullmatch(r"Read [\d.]+ % of [\d,]+ tokens · found [\d,]+ tokens back", line), line
    page.click(".found")
    page.wait_for_function(f"{SHADED} === {json.dumps(NEEDLE.rstrip('.'))}")
    top, bottom = page.evaluate(
        "(() => { const r = [...CSS.highlights.get('dsa-read-4')][0].getBoundingClientRect(), "
        "log = document.getElementById('dsa-log').getBoundingClientRect(); return [r.top - log.top, log.bottom - r.bottom]; })()"
    )
    assert top > 0 and bottom > 0, "the passage is in view"
    page.evaluate("CSS.highlights.clear()")
    page.locator(".answer .body").scroll_into_view_if_needed()
    x, y = page.evaluate(
        "(() => { const text = document.querySelector('.answer .plain').firstChild, r = new Range(); "
        "r.setStart(text, text.data.length - 4); r.setEnd(text, text.data.length - 3); "
        "const box = r.getBoundingClientRect(); return [box.left + 1, box.top + box.height / 2]; })()"
    )
    page.touchscreen.tap(x, y) if v.touch else page.mouse.move(x, y)
    page.wait_for_function(f"{ANY_SHADE}.includes('Tolmir Archive')")
    # Three steps, in whole words.
    page.click(".answer [data-action=inspect]")
    page.wait_for_selector(".dsa-story blockquote")
    assert page.locator(".dsa-number").all_inner_texts() == ["1", "2", "3"]
    assert "What is the door code" in page.locator(".dsa-context").inner_text()
    assert page.locator(".dsa-words-of").inner_text() == FOUND
    assert page.locator(".dsa-story blockquote").inner_text() == NEEDLE
    page.locator(".dsa-word", has_text="Archive").click()
    page.wait_for_function("document.querySelector('.dsa-told')?.innerText === 'Archive'")
    v.service.replies[LONG] = "I was not told."
    page.click(".dsa-try")
    page.wait_for_selector(".dsa-side")
    assert page.locator(".dsa-side p").all_inner_texts() == [FOUND, "I was not told."]
    [(first, last)] = v.service.policies[-1].forbidden
    prompt = v.service.llm.chat_token_ids([{"role": "user", "content": LONG}])
    assert "".join(token_texts(prompt, v.service.tokenizer)[first:last]).strip() == NEEDLE
    with page.expect_download() as download:
        page.click("#dsa-save-view")
    download.value.save_as(v.folder / "answer.html")
    [saved] = re.findall(r'id="data">(.*?)</script>', (v.folder / "answer.html").read_text("utf-8"))
    saved = json.loads(saved)
    assert saved["about"] == {"model": "mine", "precision": "exact", "temperature": 0, "top_p": 1}
    assert "What is the door code" in "".join(saved["texts"])
    page.click(".dsa-experts > summary")
    page.wait_for_selector(".dsa-mass td[style]")
    assert page.evaluate("(panel => panel.scrollWidth <= panel.clientWidth)(document.querySelector('.panel'))")
    small = page.evaluate(
        "[...document.querySelectorAll('#dsa-app button:not(.dsa-fold), #dsa-app summary')].filter((e) => {"
        "const r = e.getBoundingClientRect(); return r.width && (r.width < 24 || r.height < 24); }).map((e) => e.className)"
    )
    assert not small
    page.go_back()
    page.wait_for_selector("#dsa-inspector", state="hidden")


def short_chats_say_so(v: Visit) -> None:
    page = v.page
    v.new()
    v.tab.ask("Hi")
    reason = f"Shorter than {TOPK} tokens, so everything was read."
    assert page.locator(".read").inner_text().startswith(reason)
    page.click(".answer [data-action=inspect]")
    page.wait_for_function("reason => document.querySelector('.dsa-story')?.innerText.startsWith(reason)", arg=reason)
    assert page.locator(".dsa-heat").count() == 0
    page.locator(".dsa-story .dsa-run").click()
    v.answers(2)
    v.tab.wait()
    assert "%" in page.locator(".read").last.inner_text() and "piano" in v.service.asked[-1]
    page.click("#dsa-inspect-close")


def nothing_is_lost(v: Visit) -> None:
    """Retry, Edit, Clear and × can be undone."""
    page = v.page
    v.new()
    for text in ("first", "second"):
        v.tab.ask(text)
    page.locator(".answer [data-action=retry]").first.click()
    v.answers(1)
    page.wait_for_selector("#dsa-notice.shown button")
    v.tab.wait()
    page.click("#dsa-notice button")
    v.answers(2)
    page.wait_for_selector(".branches:visible")
    assert page.locator(".branches:visible").inner_text().replace("\n", "") == "‹1/2›"
    edit = page.locator(".user [data-action=edit]").first
    page.mouse.move(0, 0)
    assert v.is_visible(edit) == v.touch, "touch has no hover"
    page.locator(".message.user").first.hover()
    edit.click()
    page.fill("textarea.edit", "other")
    page.press("textarea.edit", "Enter")
    page.wait_for_function(
        "document.querySelectorAll('.answer').length === 1 && document.querySelector('.answer')?.innerText.includes('other')"
    )
    v.tab.wait()
    page.locator(".step:visible", has_text="‹").first.click()
    page.wait_for_function("document.querySelector('.user .content')?.innerText === 'first'")
    before = page.locator("#dsa-list .choose").count()
    page.click("#dsa-clear")
    assert page.locator(".message").count() == 0
    page.click("#dsa-notice button")
    page.wait_for_function("document.querySelector('.user .content')?.innerText === 'first'")
    row = page.locator("#dsa-list .entry:not(.current)").first
    if page.viewport_size["width"] <= 800:
        page.click("#dsa-menu")
        page.wait_for_function("document.getElementById('dsa-side').getBoundingClientRect().x === 0")
    remove = row.locator(".remove")
    assert v.is_visible(remove) == v.touch
    remove.focus()
    assert v.is_visible(remove)
    row.hover()
    remove.click()
    assert page.locator("#dsa-list .choose").count() == before - 1
    page.click("#dsa-notice button")
    page.wait_for_function("n => document.querySelectorAll('#dsa-list .choose').length === n", arg=before)


def thinking_and_functions(v: Visit) -> None:
    page = v.page
    v.new()
    v.service.replies = {"whose?": "That needs two facts. Turn thinking on for the next one.", "weather?": CALL}
    v.tab.ask("whose?")
    v.service.replies["whose?"] = "555-0182"
    page.click("[data-action=think]:visible")
    page.wait_for_selector(".thought:visible")
    v.tab.wait()
    assert v.tab.answer() == "555-0182" and page.locator("#dsa-thinking input").is_checked()
    assert not page.locator("details.thought[open]").count()
    page.uncheck("#dsa-thinking input")
    v.press("#dsa-settings button")
    for name in ("Weather", "Calculator"):
        page.get_by_role("checkbox", name=name).check()
    page.evaluate("document.getElementById('dsa-main').click()")  # closes the drawer
    v.tab.ask("weather?")
    assert "get_weather" in v.service.asked[-1] and "calculate" in v.service.asked[-1]
    assert page.locator(".call").inner_text() == 'get_weather {"city": "Paris"} → 18 degrees, cloudy'
    assert v.tab.answer() == "18 degrees, cloudy"


def progress_and_keys(v: Visit) -> None:
    page = v.page
    v.new()
    v.service.reading = range(100, 10**6, 100)
    page.fill("#dsa-text textarea", "word " * 300)
    page.press("#dsa-text textarea", "Enter")
    page.wait_for_function("document.querySelector('.numbers')?.innerText.endsWith(' s left')")
    assert page.locator(".numbers").inner_text().startswith("reading ") and page.locator(".reading").is_visible()
    page.keyboard.press("Escape")
    v.tab.wait()
    assert page.locator(".numbers").inner_text() == "stopped" and not page.locator(".reading").is_visible()


def reload_and_second_tab(v: Visit) -> None:
    """An answer goes on. The draft, settings, functions and the opened answer come back. Two tabs add each other's turns."""
    page = v.page
    v.new()
    v.tab.ask("early" + NUMBERS)
    v.tab.ask("late" + NUMBERS)
    page.locator(".answer [data-action=inspect]").first.click()
    page.wait_for_selector(".message.inspected")
    v.service.pace = 0.5
    page.evaluate("document.querySelector('#dsa-text textarea').focus()")
    page.locator("#dsa-text textarea").fill("growing" + NUMBERS)
    page.keyboard.press("Enter")
    page.wait_for_selector("body.dsa-running")
    v.answers(3)
    page.locator("#dsa-thinking input").evaluate("e => e.click()")
    page.locator("#dsa-text textarea").fill("half a thought")
    page.wait_for_function("localStorage['deepseek-v32/settings'].startsWith('[true')")
    page.reload()
    page.wait_for_selector("body.dsa-running")
    page.wait_for_function("document.querySelector('.dsa-context')?.innerText.includes('early')")
    assert page.locator(".panel-note").inner_text() == "Below is an earlier answer. The next one is being written …"
    page.wait_for_function("document.querySelector('#dsa-text textarea').value === 'half a thought'")
    v.service.pace = 0
    v.tab.wait()
    assert v.tab.answer() == "You said: growing" + NUMBERS
    page.click("#dsa-inspect-close")
    page.click("#dsa-send")
    v.answers(4)
    v.tab.wait()
    assert "get_weather" in v.service.asked[-1] and v.service.asked[-1].endswith("half a thought<think>")
    page.uncheck("#dsa-thinking input")
    other = type(v.tab)(page.context.new_page(), v.tab.url).open()
    other.page.evaluate("document.querySelector('#dsa-list .choose').click()")
    other.page.wait_for_selector(".answer")
    other.ask("from the second tab")
    v.answers(5)
    v.tab.ask("from the first")
    other.page.wait_for_function("document.querySelectorAll('.answer').length === 6")
    other.page.close()


def server_goes_away(v: Visit) -> None:
    """Send is pressed before the page has noticed, and again. In test_limits.py the server is killed."""
    page = v.page
    v.tab.ask("before")
    asked = len(v.service.asked)
    page.context.set_offline(True)
    page.fill("#dsa-text textarea", "and now?")
    page.click("#dsa-send", force=True)  # it may have noticed by now
    page.wait_for_selector("#dsa-away:visible")
    assert page.locator("#dsa-send").is_disabled()
    page.press("#dsa-text textarea", "Enter")
    page.context.set_offline(False)
    page.get_by_text("The server is back.").wait_for()
    page.wait_for_function("document.querySelector('#dsa-text textarea')?.value === 'and now?'")
    assert v.tab.question() == "before" and len(v.service.asked) == asked
    page.click("#dsa-send")
    page.wait_for_function("[...document.querySelectorAll('.answer .body')].at(-1)?.innerText === 'You said: and now?'")
    v.tab.problems.clear()  # the browser's own lines about a server that does not answer
