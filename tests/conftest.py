"""For all tests: what needs a GPU is skipped without one, slow tests unless -m asks for them, and generated cases have no
deadline on busy machines.
"""

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")


def pytest_collection_modifyitems(config, items):
    if "slow" not in config.option.markexpr:
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: -m slow runs it"))
    if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0):
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs a Hopper GPU"))
