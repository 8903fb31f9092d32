"""Which tests `make quick` runs: a share of every folder's, chosen by rule, so that new tests are in it by themselves."""

from collections.abc import Iterable

import pytest


def quick_share(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The first case of each test that is neither heavy nor slow; of those that open a browser, the first of each file."""
    share: dict[str, pytest.Item] = {}
    for item in items:
        if item.get_closest_marker("heavy") or item.get_closest_marker("slow"):
            continue
        test = item.nodeid.partition("[")[0]
        in_browser = "chromium" in getattr(item, "fixturenames", ())
        share.setdefault(test.partition("::")[0] if in_browser else test, item)
    return list(share.values())
