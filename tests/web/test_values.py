"""What is displayed contains every value of an answer: numbers, codes, paths, names of files, mathematics."""

from typing import Any

import pytest

from deepseek_v32.inference.chat_app.markdown import shown_text, to_html, to_text
from deepseek_v32.model.demo import NAME as DEMO_NAME
from support.chat_server import ScriptedService, scripted_llm, serve

# Each line is a value, as an answer to a question for it.
NUMBERS = """0042|007|42|314159|3.14|1,000|1.000.000,50|-5|+5|- 5|+ 5|* 5|1. 2. 3|5. 6. 2026|2026-06-05|12:30|1e-5|0x1F|50 %|$5
1986|10.15|#7|# 7|7.|7)|(7)|[7]|[7](8)|[7]: 8|> 7|>7|~7~|~~7~~|_7_|*7*|`7`|&#55;|7\\8|\\7|555-0182|+49 30 1234|1/2|1.|01. 02."""
CODES = """maple-otter-58|A*B*7|__7__|x_1_y|a**7|7**b**8
*args|**kwargs|f[0](42)|<b>7</b>|&amp;7|a&b=7|C-3PO|#ff00aa|7a.b_c|!important|=7|7--8|{7}"""
PATHS = r"""/usr/lib/x_y_z|C:\temp\new|C:\_foo\#1|\\server\share_1_|~/a/~b|./__init__.py|*.py|*.py,*.js
src/*/7_*.txt|a b/7 (1).txt|file:///7|https://a.example/_7_?x=*8*"""
MATHEMATICS = r"""2*3*4 = 24|2 * 3 * 4|2**3**4|x_1 + x_2|a_{1}b_{2}|\frac{1}{2}
$1 < 2$|7 > 5|7 ~ 8|5 - 3|7! = 5040|[0, 1)|\(7\)|\[8\]|7 ^ 2|-1 - -2"""
VALUES = [
    value for text in (NUMBERS, CODES, PATHS, MATHEMATICS) for line in text.splitlines() for value in line.split("|")
]
FORMS = ("{}", "{}. You said: It is {}.", "It is {}", "Well:\n\n{}\n\n- {}\n- and **{}**", "> {}\n# {}", "1. {}\n2. {}")


def alike(text: str) -> str:
    """With single spaces, and without the marks that Markdown's own formats may drop around a value."""
    return " ".join(text.split())


@pytest.mark.parametrize("form", FORMS)
def test_no_value_is_changed(form: str) -> None:
    wrong = []
    for value in VALUES:
        text = form.replace("{}", value)
        assert shown_text(to_text(text)) == text
        shown = alike(shown_text(to_html(text)))
        bare = value.strip("`")  # code is set in another font instead
        bare = bare.removeprefix("# ")  # a heading, whose number stays
        bare = bare.strip("*") if bare.startswith("**") and bare.endswith("**") else bare
        if shown.count(alike(bare)) < form.count("{}"):
            wrong.append((text, shown))
    assert not wrong


def test_markdown_stays() -> None:
    html = to_html(
        "# Title\n\nSome **bold 7** text, `code`.\n\n1. one\n   - two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx\n```"
    )
    for tag in ("<h1>", "<strong>bold 7</strong>", "<code>code</code>", "<ol>", "<ul>", "<td>1</td>", "<pre>"):
        assert tag in html


@pytest.mark.parametrize("is_demo", [True, False], ids=["demo", "released"])
def test_the_page_shows_every_value(open_tab: Any, scripted: Any, is_demo: bool) -> None:
    """Read back from the page as text, on a phone."""
    server = serve(ScriptedService(scripted_llm(DEMO_NAME), pace=0)) if is_demo else scripted
    answer = "\n\n".join(VALUES)
    server.service.replies = {"values?": answer, "code?": "0042. You said: The door code is 0042."}
    server.service.pace = 0
    tab = open_tab(url=server.url, viewport={"width": 390, "height": 844})
    tab.page.click("#dsa-menu")
    tab.page.evaluate("document.querySelector('#dsa-settings button').click()")
    tab.page.get_by_label("Maximum length").last.fill("4000")
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("#dsa-new", state="hidden")
    tab.ask("values?")
    shown = tab.answer()
    if is_demo:
        assert shown == answer
    missing = [value for value in VALUES if alike(value.strip("`#* ")) not in alike(shown)]
    assert not missing
    tab.ask("code?")
    assert tab.answer() == "0042. You said: The door code is 0042."
    wide = tab.page.evaluate(
        "[...document.querySelectorAll('.answer .body *')].filter((e) => "
        "e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display === 'block').length"
    )
    assert wide == 0
    if is_demo:
        tab.page.close()  # it would look for the server
        server.stop()
