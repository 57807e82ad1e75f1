"""The order of the tests, and what is so in all of them."""

import gc
import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

import tests.unsynced  # noqa: F401

gc.disable()  # nothing that is imported and collected is garbage: the search for it took half of the collection's time

# Before PyTorch is imported: what tests compute is small, and their processes share few cores. A run has its own.
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
settings.register_profile("any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
"""How long an example takes depends on what else runs here, and is no failure. The examples are always the same."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the most tests marked slow come first: what several processes begin with, none of them ends with."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
