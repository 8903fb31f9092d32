"""Every kernel test takes the fixture `backend`, and so runs with all implementations that this machine can run."""

import pytest

from support.backends import Backend, present


@pytest.fixture(params=present())
def backend(request: pytest.FixtureRequest) -> Backend:
    return Backend(request.param)
