"""A slice of the soak with cache checks, and that it notices a launch that is left out now and then."""

import pytest

from campaigns import soak
from deepseek_v32.model import indexer

SLICE = {"device": "cpu", "clients": 3, "prompts": 2, "pages": 24}


@pytest.mark.heavy
def test_a_slice() -> None:
    result = soak.run(seed=1, seconds=1, **SLICE)
    assert result["failures"] == []
    assert sum(result["requests"].values()) >= 3 and result["generated_tokens"] > 20


@pytest.mark.heavy
def test_a_launch_that_is_left_out_fails_the_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = indexer.write_index_cache, [0]

    def skip_some(*arguments: object, **options: object) -> None:
        calls[0] += 1
        if calls[0] % 10:
            write(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(indexer, "write_index_cache", skip_some)
    failures = soak.run(seed=2, seconds=1, **SLICE)["failures"]
    assert any("the cache check failed" in failure for failure in failures), failures
