"""Every kernel test takes `backend` and so runs on whatever implementations this machine has."""

import pytest

from support.backends import Backend, present


@pytest.fixture(params=present())
def backend(request: pytest.FixtureRequest) -> Backend:
    return Backend(request.param)
