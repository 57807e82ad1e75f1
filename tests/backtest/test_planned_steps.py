"""The table of planned steps, and the changes of an FP8 step."""

import pytest

from tests.backtest.planned_steps import CHANGES, STEPS, changed_steps, table_lines

pytestmark = pytest.mark.slow


def test_published_steps_stand_beside_planned_ones_of_their_format() -> None:
    lines = list(table_lines())
    assert len(lines) == 2 + len(STEPS)
    (row,) = (line for line in lines if "`llama31_8b` `dgxh100_n1` 128" in line)
    _, _, bf16, published_bf16, fp8, _, published_fp8, _ = (cell.strip() for cell in row.split("|"))
    assert (published_bf16, published_fp8) == ("12.3 s (NVIDIA's recipe, 25.04)", "9.07 s (Megatron-Bridge, 25.11)")
    assert float(fp8.split()[0]) < float(bf16.split()[0])


def test_changes_add_up_and_leave_the_model_as_it_was() -> None:
    step = next(step for step in STEPS if "fp8" in step.published)
    (as_it_is, _), *changes = changed_steps(step)
    assert next(changed_steps(step))[0] == as_it_is
    gains = [gain or 0.0 for _, gain in changes]
    assert len(gains) == len(CHANGES)
    assert as_it_is.total - sum(gains) == pytest.approx(changes[-1][0].total)
    assert all(gain >= 0 for gain in gains)
