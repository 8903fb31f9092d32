import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# Console messages that are no faults: gradio's when its event stream ends because the page is left, and the 401 before the password
# is given and for the manifest, which browsers fetch without it.
HARMLESS = ("AbortError", "Connection errored out", "ERR_NETWORK_IO_SUSPENDED", "network error", "status of 401")


# Playwright's event loop runs in this thread until the fixture ends. With a longer scope, asyncio.run would fail in the tests of
# other folders that the process takes over.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    pytest.importorskip("gradio", reason="gradio is not installed: pip install -e .[web]")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def scripted() -> Iterator[Any]:
    pytest.importorskip("gradio", reason="gradio is not installed: pip install -e .[web]")
    from support.chat_server import ScriptedService, scripted_llm, serve

    server = serve(ScriptedService(scripted_llm()))
    yield server
    server.stop()


@dataclass
class Tab:
    """A page with the chat, and the problems that it reported."""

    page: Any
    url: str
    elsewhere: list[str] = field(default_factory=list)  # requests that left the server
    problems: list[str] = field(default_factory=list)  # errors and dialogs

    def open(self) -> "Tab":
        self.page.goto(self.url)
        self.page.wait_for_selector("body.dsa-ready")
        return self

    def ask(self, text: str, wait: bool = True) -> None:
        answers = self.page.locator(".answer").count()
        self.page.fill("#dsa-text textarea", text)
        self.page.click("#dsa-send")
        self.page.wait_for_function("n => document.querySelectorAll('.answer').length > n", arg=answers)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until no answer grows."""
        self.page.wait_for_selector("body:not(.dsa-running)")

    def settle(self) -> None:
        """Wait until nothing moves or changes its colour."""
        self.page.wait_for_function("document.getAnimations().every(({ playState }) => playState !== 'running')")

    def answer(self, index: int = -1) -> str:
        return self.page.locator(".answer .body").nth(index).inner_text().strip()

    def question(self, index: int = -1) -> str:
        return self.page.locator(".user .plain").nth(index).inner_text()


@pytest.fixture
def open_tab(chromium: Any, scripted: Any) -> Iterator[Any]:
    """open_tab(context=None, **options) → a Tab; tabs of the same context share the browser's storage."""
    contexts = []
    tabs: list[Tab] = []

    def make(context: Any = None, url: str | None = None, **options: Any) -> Tab:
        if context is None:
            context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
            contexts.append(context)
        tab = Tab(context.new_page(), url or scripted.url)
        tab.page.set_default_timeout(30_000)
        origin = tab.url.rstrip("/")
        tab.page.on(
            "request",
            lambda r: tab.elsewhere.append(r.url) if not r.url.startswith((origin, "data:", "blob:")) else None,
        )
        tab.page.on("pageerror", lambda error: tab.problems.append(str(error)))
        tab.page.on("dialog", lambda dialog: (tab.problems.append("dialog: " + dialog.message), dialog.dismiss()))
        tab.page.on("console", lambda m: tab.problems.append(m.text) if m.type == "error" else None)
        tabs.append(tab)
        return tab.open()

    scripted.service.pace, scripted.service.held, scripted.service.upto = 0.004, None, None
    yield make
    for context in contexts:
        context.close()
    for tab in tabs:
        assert not tab.elsewhere, "the page reached out to other hosts"
        assert not [problem for problem in tab.problems if not any(text in problem for text in HARMLESS)]
