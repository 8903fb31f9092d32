"""The page fits its screens, and nothing jumps while an answer grows."""

from typing import Any

import pytest


@pytest.mark.parametrize("size", [(390, 844), (390, 560), (1280, 500)], ids=lambda size: "x".join(map(str, size)))
def test_the_start_page_is_read_from_its_top(open_tab: Any, scripted: Any, size: tuple[int, int]) -> None:
    """It says what can be asked; an answer, in contrast, is read at its end."""
    tab = open_tab(viewport={"width": size[0], "height": size[1]})
    log = "document.getElementById('dsa-log')"
    heading = "document.querySelector('.welcome h2').getBoundingClientRect().top"
    tab.page.wait_for_selector(".examples button")
    tab.page.wait_for_function(f"{heading} >= {log}.getBoundingClientRect().top")
    tab.page.evaluate(f"{log}.scrollTop = 40")  # somebody reads on
    tab.page.set_viewport_size({"width": size[0] + 10, "height": size[1] - 20})
    tab.page.wait_for_timeout(200)
    assert tab.page.evaluate(f"{log}.scrollTop") > 0, "and is left where they are"
    scripted.service.pace = 0
    tab.ask("word " * 150)
    end = "[...document.querySelectorAll('.answer')].at(-1).getBoundingClientRect().bottom"
    tab.page.wait_for_function(f"{end} <= {log}.getBoundingClientRect().bottom + 1")


def test_phone_opens_and_closes_its_drawer(open_tab: Any) -> None:
    tab = open_tab(viewport={"width": 390, "height": 844})
    assert tab.page.locator("#dsa-side").bounding_box()["x"] < -200
    tab.page.click("#dsa-menu")
    tab.page.wait_for_function("document.getElementById('dsa-side').getBoundingClientRect().x === 0")
    tab.page.click("#dsa-new")
    tab.page.wait_for_function("document.getElementById('dsa-side').getBoundingClientRect().x < -200")


def test_nothing_jumps_while_streaming(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    tab.ask("before")
    scripted.service.pace = 0.015
    tab.ask("word " * 25, wait=False)
    tab.page.evaluate(
        """() => { window.tops = new Set(); window.widths = new Set();
        const note = () => { for (const id of ['dsa-composer', 'dsa-meter-box']) {
            const box = document.getElementById(id).getBoundingClientRect(); window.tops.add(id + box.top); }
          window.widths.add(document.querySelector('.messages').getBoundingClientRect().width);
          window.noting = requestAnimationFrame(note); }; note(); }"""
    )
    tab.wait()
    tab.page.wait_for_timeout(200)
    assert len(tab.page.evaluate("[...window.tops]")) == 2
    assert len(tab.page.evaluate("[...window.widths]")) == 1


def test_reading_back_is_not_disturbed(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    scripted.service.pace = 0
    tab.ask("word " * 300)
    scripted.service.pace = 0.02
    tab.ask("more " * 20, wait=False)
    tab.page.evaluate("document.getElementById('dsa-log').scrollTop = 0")
    tab.page.wait_for_timeout(600)
    assert tab.page.evaluate("document.getElementById('dsa-log').scrollTop") == 0
    tab.wait()
    assert tab.page.evaluate("document.getElementById('dsa-log').scrollTop") == 0


def test_theme_is_remembered(open_tab: Any) -> None:
    tab = open_tab(color_scheme="light")
    light = tab.page.evaluate("getComputedStyle(document.getElementById('dsa-app')).backgroundColor")
    tab.page.click("#dsa-theme")
    dark = tab.page.evaluate("getComputedStyle(document.getElementById('dsa-app')).backgroundColor")
    assert light == "rgb(255, 255, 255)" and dark != light
    tab.page.reload()
    tab.page.wait_for_selector("body.dsa-ready")
    assert tab.page.evaluate("getComputedStyle(document.getElementById('dsa-app')).backgroundColor") == dark


def test_the_sidebar_is_whole_or_away(open_tab: Any) -> None:
    """No strip of the sidebar with cut text is left, with the inspector open or the sidebar closed."""
    tab = open_tab()
    page = tab.page

    def seen() -> float:
        return page.evaluate(
            """() => { const side = document.getElementById("dsa-side"), box = side.getBoundingClientRect();
            return getComputedStyle(side).visibility === "hidden" ? 0 : Math.max(0, box.right) - Math.max(0, box.left); }"""
        )

    def fits() -> bool:
        return page.evaluate("document.querySelector('#dsa-side .brand').getBoundingClientRect().width > 180")

    def press(selector: str, **where: Any) -> None:
        page.click(selector, **where)
        tab.settle()

    for width in (801, 820, 960, 1100, 1101, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        press("#dsa-inspect")
        assert (seen() == 0) if width <= 1100 else (seen() > 200 and fits())
        main = page.locator("#dsa-main").bounding_box()
        assert main["width"] >= width - 452 - 250
        press("#dsa-menu")
        assert (seen() > 200 and fits()) if width <= 1100 else seen() == 0
        if width <= 1100:
            press("#dsa-main", position={"x": main["width"] - 20, "y": 300})
            assert seen() == 0
        press("#dsa-inspect-close")
        assert seen() == (0 if width > 1100 else 248)
        if width > 1100:
            press("#dsa-menu")


def test_the_question_below_a_long_text_stays_visible(open_tab: Any, scripted: Any) -> None:
    tab = open_tab()
    scripted.service.pace = 0
    tab.ask("a line of a pasted text\n" * 90 + "What does it say?")
    assert tab.page.locator(".tail").inner_text() == "What does it say?"
    assert tab.page.locator(".tail").is_visible()
    tab.page.click(".more")
    assert not tab.page.locator(".tail").is_visible()


CONTRASTS = """() => {
  const luminance = (rgb) => rgb.map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const colour = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const backdrop = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.unshift(colour(getComputedStyle(each).backgroundColor));
    return layers.reduce((under, [r, g, b, a]) => [r, g, b].map((v, i) => v * a + under[i] * (1 - a)), [255, 255, 255]);
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.disabled || !element.checkVisibility({ visibilityProperty: true })) continue;
    const [one, other] = [colour(getComputedStyle(element).color).slice(0, 3), backdrop(element)].map(luminance);
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) found.push([element.className, texts.currentNode.data.trim().slice(0, 30), contrast]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(open_tab: Any, scripted: Any, scheme: str) -> None:
    """WCAG 2.2, 1.4.3: a contrast of 4.5 for all text, the shaded tokens and the hints of the settings, too."""
    tab = open_tab(color_scheme=scheme)
    scripted.service.pace = 0
    assert not tab.page.evaluate(CONTRASTS)
    tab.page.click("#dsa-inspect")
    tab.ask("What can be read? " + "word " * 60)
    tab.page.click(".dsa-experts > summary")
    tab.page.wait_for_selector(".dsa-passage")
    tab.page.evaluate(
        "[1, 2, 3, 4].forEach((n) => document.querySelector('.dsa-text').append("
        "Object.assign(document.createElement('span'), { className: `dsa-l${n}`, textContent: `level ${n}` })))"
    )
    tab.page.click("#dsa-settings button")
    tab.page.get_by_label("Temperature").last.wait_for()
    assert not tab.page.evaluate(CONTRASTS)


def test_the_keyboard_shows_where_it_is(open_tab: Any) -> None:
    """WCAG 2.2, 2.4.7: each control that the Tab key reaches has an outline; the message box's border shows it instead."""
    tab = open_tab()
    tab.page.click("#dsa-settings button")
    tab.page.get_by_label("Temperature").last.wait_for()
    seen, missing = set(), []
    for _ in range(30):
        tab.page.keyboard.press("Tab")
        tag, name, outline, inside = tab.page.evaluate(
            "(() => { const e = document.activeElement; return [e.tagName, e.ariaLabel || e.placeholder || e.innerText, "
            "getComputedStyle(e).outlineStyle, Boolean(e.closest('#dsa-text'))]; })()"
        )
        seen.add(tag)
        if outline == "none" and tag != "BODY" and not inside:
            missing.append((tag, name))
    assert {"INPUT", "BUTTON"} <= seen and not missing, missing
