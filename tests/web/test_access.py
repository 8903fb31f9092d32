"""Anyone can use the page: axe-core finds nothing serious, at three sizes and in both themes; nothing is cut off."""

from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).parents[2] / "scripts" / "serving" / "node_modules" / "axe-core" / "axe.min.js"
SIZES = {"desktop": (1440, 900), "tablet": (820, 1180), "phone": (390, 844)}
RUN = """async () => (await axe.run(document.getElementById("dsa-app"), { resultTypes: ["violations"] })).violations
  .filter(({ impact }) => impact === "serious" || impact === "critical")
  .map(({ id, nodes }) => [id, nodes.slice(0, 3).map((node) => node.html.slice(0, 160))])"""


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.exists():
        pytest.skip("needs axe-core: npm install --prefix scripts/serving, which make test does where npm is")
    return AXE.read_text(encoding="utf-8")


@pytest.mark.heavy
def test_axe_finds_nothing_serious(open_tab: Any, scripted: Any, axe: str) -> None:
    scripted.service.pace = 0
    tab = open_tab(color_scheme="light")
    page = tab.page
    page.evaluate(axe)
    found = {"start": page.evaluate(RUN)}
    tab.ask("one")
    tab.ask("What can be read? " + "word " * 60)
    page.locator(".answer [data-action=retry]").first.click()  # makes a branch
    page.wait_for_selector(".branches:visible")
    tab.wait()
    tab.ask("And again? " + "word " * 60)
    page.click("#dsa-settings button")
    page.get_by_label("Temperature").last.wait_for()
    page.locator(".answer [data-action=inspect]").last.click()
    page.click(".dsa-experts > summary")
    page.wait_for_selector(".dsa-mass td[style]")
    for theme in ("light", "dark"):
        for name, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            found[f"{name} {theme}"] = page.evaluate(RUN)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate("document.getElementById('dsa-theme').click()")
        tab.settle()  # gradio's colours change gradually
    page.set_viewport_size({"width": 390, "height": 844})
    page.click("#dsa-inspect-close")
    found["phone without the inspector"] = page.evaluate(RUN)
    assert not {name: faults for name, faults in found.items() if faults}


def test_the_page_is_small(open_tab: Any) -> None:
    """All that a first visit transfers, in bytes."""
    tab = open_tab()
    tab.page.wait_for_timeout(500)
    sizes = tab.page.evaluate(
        "['navigation', 'resource'].flatMap((kind) => performance.getEntriesByType(kind)).map((e) => e.transferSize)"
    )
    assert len(sizes) > 10 and 100_000 < sum(sizes) < 450_000
