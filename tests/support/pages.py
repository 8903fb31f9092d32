"""Checks of a page pool's tables."""

from deepseek_v32.inference.engine.scheduling.pages import PagePool


def check_pool(pool: PagePool) -> None:
    """Assert that every page is in exactly one state and that the tables agree."""
    states = [0] * pool.page_count
    for page in pool._free:
        states[page] += 1
        assert pool._references[page] == 0 and pool._keys[page] is None, f"free page {page} is held or registered"
    for page in pool._cached:
        states[page] += 1
        assert pool._references[page] == 0 and pool._keys[page] is not None, f"cached page {page} is held or empty"
    for page, references in enumerate(pool._references):
        assert states[page] == (0 if references else 1), f"page {page}: {references} references, {states[page]} lists"
    assert pool.free + pool.used + pool.cached == pool.page_count
    registered = {page: key for page, key in enumerate(pool._keys) if key is not None}
    assert registered == {page: key for key, (page, _) in pool._entries.items()}, "entries and keys disagree"
