"""The order of the tests, and what is so in all of them."""

from collections import Counter

import pytest

import tests.unsynced  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the most tests marked slow come first: what several processes begin with, none of them ends with."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])
