"""More devices cost more each; the causes are named."""

import pytest

from benchmark.planning.layout_search import scaling_table as module
from benchmark.planning.layout_search.scaling_table import scaled_runs, scaling_markdown
from benchmark.planning.step_model.machine_constants import committed_constants


def test_utilisation_falls_with_the_devices_most_at_a_constant_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NODES", (64, 256))
    monkeypatch.setattr(module, "TENSOR", (4,))
    monkeypatch.setattr(module, "PIPELINE", (8,))
    constants = committed_constants()
    constant, growing = (scaled_runs(constants, growing=each) for each in (False, True))
    assert constant[0] == growing[0]
    assert constant[1].mfu < growing[1].mfu < growing[0].mfu
    assert constant[1].parts.bubble / constant[1].parts.total > 2 * constant[0].parts.bubble / constant[0].parts.total
    assert constant[1].goodput < constant[0].goodput
    table = scaling_markdown(constants)
    assert table.count("| 2,048 | 2,048 | TP 4 PP 8/") == 1
    assert table.count("| 2,048 | 8,192 |") == 1
