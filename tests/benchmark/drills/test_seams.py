"""The functions that faults strike in are there, and are called with what the acts take them for."""

import importlib
import inspect
from typing import Any

import pytest

from benchmark.drills.seams import SEAMS, wrap
from benchmark.training.engine.adam import Adam

PARAMETERS = {"step": ["state", "batches"], "gradients": ["self"], "copy": ["self"], "passes": ["state", "batches"]}


@pytest.mark.parametrize("seam", SEAMS)
def test_seam_is_there(seam: str) -> None:
    module, name = SEAMS[seam]
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)
    expected = PARAMETERS.get(seam, [])
    assert list(inspect.signature(found).parameters)[: len(expected)] == expected


def test_a_method_is_wrapped_in_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Adam, "gradient_square_sum", lambda self: 2)
    wrap("gradients", lambda call: lambda self: call(self) + 1)
    assert Adam.gradient_square_sum(None) == 3  # type: ignore[arg-type]
