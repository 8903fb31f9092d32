"""No text of the model, a user or a file may run, load or link to anything; the server serves the chat and nothing else."""

import itertools
import json
import urllib.error
import urllib.request
from html.parser import HTMLParser
from typing import Any

import pytest

from deepseek_v32.inference.chat_app.conversation import Conversation
from deepseek_v32.inference.chat_app.markdown import LONGEST, to_html

INJECTIONS = [
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    "<img src='https://elsewhere.example/pixel.png'>",
    "![pixel](https://elsewhere.example/pixel.png)",
    "![x](javascript:window.hit=1)",
    '![x](x" onerror="window.hit=1)',
    "[click](javascript:window.hit=1)",
    "[click](data:text/html,<script>window.hit=1</script>)",
    "[click](https://elsewhere.example/?leak=1)",
    "<https://elsewhere.example/auto>",
    "<javascript:window.hit=1>",
    "[ref]\n\n[ref]: https://elsewhere.example/ref",
    "![ref]\n\n[ref]: https://elsewhere.example/ref.png",
    "<svg onload=window.hit=1>",
    "<svg><script>window.hit=1</script></svg>",
    "<iframe src=https://elsewhere.example></iframe>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<style>@import url(https://elsewhere.example/a.css)</style>",
    "<link rel=stylesheet href=https://elsewhere.example/a.css>",
    "<link rel=prefetch href=https://elsewhere.example/b>",
    "<meta http-equiv=refresh content='0;url=https://elsewhere.example'>",
    "<base href=https://elsewhere.example/>",
    "<video src=https://elsewhere.example/v.mp4 autoplay onerror=window.hit=1></video>",
    "<audio src=x onerror=window.hit=1>",
    "<object data=https://elsewhere.example/o></object><embed src=https://elsewhere.example/e>",
    "<form action=https://elsewhere.example><input autofocus onfocus=window.hit=1></form>",
    "<details open ontoggle=window.hit=1>x</details>",
    "<a href=https://elsewhere.example ping=https://elsewhere.example/ping>x</a>",
    "<div style='background:url(https://elsewhere.example/bg.png)' onmouseover=window.hit=1>x</div>",
    '```html"><script>window.hit=1</script>\n<img src=x onerror=window.hit=1>\n```',
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=x onerror=window.hit=1&gt;'>",
    "`<img src=x onerror=window.hit=1>` ${window.hit=1} {{constructor.constructor('window.hit=1')()}}",
    "| a |\n|---|\n| <img src=x onerror=window.hit=1> ![x](https://elsewhere.example/t.png) |",
]
HARMLESS = set("p div span pre code br em strong s ul ol li table thead tbody tr th td blockquote hr h1 h2 h3".split())  # noqa: SIM905
ACTIVE = (
    "script, img, iframe, object, embed, link, meta, base, video, audio, form, svg, style, a[href], [onerror], [style]"
)


def test_there_are_thirty() -> None:
    assert len(set(INJECTIONS)) >= 30


@pytest.mark.parametrize("text", [*INJECTIONS, "x" * (LONGEST + 1)], ids=range(len(INJECTIONS) + 1))
def test_markdown_makes_only_harmless_tags(text: str) -> None:
    found: list[tuple[str, list[tuple[str, str | None]]]] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            found.append((tag, attributes))

    Tags().feed(to_html(text))
    for tag, attributes in found:
        assert tag in HARMLESS
        assert {name for name, _ in attributes} <= {"class", "title"}


def test_no_injection_runs_or_loads(open_tab: Any, scripted: Any) -> None:
    """An injection does nothing as a question, an answer, a thought, a title, a file's name, or from a file."""
    tab = open_tab()
    service = scripted.service
    service.pace = 0
    everything = "\n\n".join(INJECTIONS)
    service.thoughts = everything
    tab.page.check("#dsa-thinking input")
    try:
        tab.ask(everything)
    finally:
        service.thoughts = "I look."
    messages = [{"role": "user", "content": text, "files": [{"name": text, "text": text}]} for text in INJECTIONS]
    messages += [
        {"role": "assistant", "content": text, "reasoning": text, "finish": text, "error": text, "run": text}
        for text in INJECTIONS
    ]
    conversation = {
        "title": INJECTIONS[1],
        "messages": messages,
        "html": [["<img src=x onerror=window.hit=1>"] * 2] * 90,
    }
    tab.page.evaluate("() => window.scrollTo(0, 0)")
    check(tab)
    tab.page.set_input_files(
        "#dsa-import-file",
        {"name": "x.json", "mimeType": "application/json", "buffer": json.dumps(conversation).encode()},
    )
    tab.page.wait_for_function(f"document.querySelectorAll('.message').length === {len(messages)}")
    check(tab)
    tab.page.locator("#dsa-list .choose").nth(0).hover()
    for link in tab.page.locator(".link").all()[:3]:
        link.click(force=True)
    check(tab)
    assert tab.page.url == tab.url


def check(tab: Any) -> None:
    assert tab.page.evaluate("window.hit") is None
    active = tab.page.evaluate(
        "(selector) => [...document.querySelectorAll('.messages, #dsa-list, #dsa-title')]"
        ".flatMap(box => [...box.querySelectorAll(selector)]).map(element => element.outerHTML)",
        ACTIVE,
    )
    # The text area of a question under edit, and nothing else, may carry a style.
    assert active == []


def fetch(url: str, data: bytes | None = None, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


@pytest.mark.parametrize(
    "path",
    [
        "gradio_api/upload",
        "gradio_api/file=/etc/passwd",
        "gradio_api/file=pyproject.toml",
        "gradio_api/file/etc/passwd",
        "file=/etc/passwd",
        "gradio_api/proxy=https://elsewhere.example",
        "gradio_api/stream/a/b/c/playlist.m3u8",
        "gradio_api/process_recording",
        "gradio_api/vibe-edit",
        "gradio_api/runs",
        "gradio_api/openapi.json",
        "static/../../../../etc/passwd",
        "static/%2e%2e/%2e%2e/%2e%2e/routes.py",
        "assets/..%2f..%2f..%2froutes.py",
        "assets//etc/passwd",
        "monitoring",
        "login",
    ],
)
def test_only_the_chat_is_served(scripted: Any, path: str) -> None:
    for data in (None, b"x"):
        assert fetch(scripted.url + path, data)[0] in (403, 404, 405)


def test_every_response_carries_the_policy(scripted: Any) -> None:
    for path in ("", "config", "theme.css"):
        policy = fetch(scripted.url + path)[1]["content-security-policy"]
        assert "default-src 'self'" in policy and "http" not in policy
        assert fetch(scripted.url + path)[1]["x-content-type-options"] == "nosniff"


def test_the_page_may_call_only_its_own_functions(scripted: Any) -> None:
    for name, component in itertools.product(("get_config", "__init__", "postprocess", "unknown"), (1, 12, 10**9)):
        body = json.dumps({"component_id": component, "fn_name": name, "data": 1, "session_hash": "s"}).encode()
        status, _ = fetch(scripted.url + "gradio_api/component_server", body, **{"content-type": "application/json"})
        assert status in (404, 422)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "text",
        {"messages": "x"},
        {"messages": [1]},
        {"messages": [{"role": "system", "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": "x", "files": [1]}]},
        {"messages": [{"role": "user"}] * 2_001},
        {"messages": [{"role": "user", "content": "x" * 4_000_001}]},
        {"format": "other"},
        {"version": 99},
        {"system": ["x"]},
    ],
    ids=str,
)
def test_a_conversation_from_outside_is_checked(value: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        Conversation.from_json(value)


def test_a_conversation_survives_its_own_json() -> None:
    value = {
        "id": "abc",
        "title": "T",
        "system": "S",
        "messages": [
            {"role": "user", "content": "q", "files": [{"name": "f", "text": "t", "tokens": 3}]},
            {
                "role": "assistant",
                "content": "a",
                "reasoning": "r",
                "numbers": {"seed": 1.0},
                "finish": "stop",
                "run": "r1",
            },
        ],
    }
    once = Conversation.from_json(value).to_json()
    assert {key: once[key] for key in value} == value
    assert Conversation.from_json(once).to_json() == once
    assert Conversation.from_json({"id": "../../x", "messages": []}).id != "../../x"
    assert Conversation.from_json({"messages": [{"role": "user", "content": " "}]}).name() == "New chat"
