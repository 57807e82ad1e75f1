import sys
from types import ModuleType

import pytest

from tests.benchmark.training.machine import pynvml


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Three H100s; a test may change what they say."""
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    monkeypatch.setattr(pynvml, "SAYS", dict(pynvml.SAYS))
    return pynvml
