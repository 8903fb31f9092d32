"""For all tests: GPU tests are skipped without a GPU, slow tests unless -m asks for them, and --quick takes a share.

Generated cases have no deadline, because machines may be busy.
"""

import os
import signal
from pathlib import Path

import hypothesis
import pytest
import torch

from support.quick import quick_share

# httpx reads all certificates for each client, also of plain HTTP, in 46 ms. It reads a folder only when a connection needs one.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")

# A shell's background jobs ignore Ctrl-C, and so would the programs that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="the first case of every test that is not heavy (make quick)")


def pytest_collection_modifyitems(config, items):
    if config.option.quick:
        share = quick_share(items)
        config.hook.pytest_deselected(items=list(set(items) - set(share)))
        items[:] = share
    hopper = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.timeout(0))  # none
            if "slow" not in config.option.markexpr:
                item.add_marker(pytest.mark.skip(reason="slow: -m slow runs it"))
        if "gpu" in item.keywords and not hopper:
            item.add_marker(pytest.mark.skip(reason="needs a Hopper GPU"))
