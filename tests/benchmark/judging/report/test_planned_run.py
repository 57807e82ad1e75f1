"""A plan beside a run: what lies within, what does not, where it may be."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.judging.report.page_parts import Table, Words
from benchmark.judging.report.planned_run import planned_section, read_plan
from foundation.errors import InputError
from tests.benchmark.judging.report.made_pages import made_runs
from tests.benchmark.judging.report.runs import write_run

PLAN: dict[str, Any] = {
    "planned_for": {
        "system": "cpu_p2", "accelerator": "cpu", "devices": 2, "global_batch_size": 16, "precision": "bf16",
    },
    "step_s": 0.48,
    "evaluation_s": 1.0,
    "run_s": 11.0,
    "memory_bytes": {"peak": 1e9},
    "intervals": {"step_s": [0.4, 0.55], "evaluation_s": [0.9, 1.1], "run_s": [10, 12]},
    "parts": {"matmul": 0.4, "bubble": 0.06, "host": 0.0, "fixed": 0.02},
    "costs": {"init_s": 2.0, "init_interval_s": [1, 4], "checkpoint": {"pause_s": 0.5, "pause_interval_s": [0.1, 1]}},
}  # fmt: skip


def shown(folder: Path, plan: dict[str, Any]) -> tuple[list[list[str]], list[str]]:
    """Texts of the tables and of the remarks beside a run with this plan in its folder."""
    run = write_run(folder / "run")
    (run / "plan.json").write_text(json.dumps(plan))
    section = planned_section(made_runs(run), None)
    assert section is not None
    tables = [one for one in section.parts if isinstance(one, Table)]
    remarks = [one.text for one in section.parts if isinstance(one, Words) and one.quiet]
    return [[cell.text for cell in row.cells] for one in tables for row in one.rows], remarks


def test_figures_beside_those_of_the_run(tmp_path: Path) -> None:
    rows, remarks = shown(tmp_path, PLAN)
    assert [(row[0], row[1], *row[-2:]) for row in rows[:5]] == [
        ("step", "0.48 s", "0.50 s", "+4.2%"),
        ("evaluation", "1.00 s", "1.50 s", "+50.0%"),
        ("run_start to run_stop", "11.00 s", "11.00 s", "+0.0%"),
        ("init", "2.00 s", "2.00 s", "+0.0%"),
        ("pause for a checkpoint", "0.50 s", "0.25 s", "-50.0%"),
    ]
    assert rows[5:] == [["matmul", "0.40 s", "83.3%"], ["bubble", "0.06 s", "12.5%"], ["fixed", "0.02 s", "4.2%"]]
    assert remarks == []
    other = {**PLAN, "planned_for": {**PLAN["planned_for"], "accelerator": "H100 SXM", "devices": 512}}
    assert shown(tmp_path / "other", other)[1] == [
        "Planned for accelerator H100 SXM, ran with cpu: the plan is of another run.",
        "Planned for devices 512, ran with 2: the plan is of another run.",
    ]
    odd = {"planned_for": {"devices": "<b>"}, "step_s": "fast", "intervals": [], "parts": {"a": None}, "costs": 3}
    told = ["Planned for devices <b>, ran with 2: the plan is of another run."]
    assert shown(tmp_path / "odd", odd) == ([], told)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "truncated; give the output"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"step_s": 1}', "no plan of a run"),
    ],
)
def test_file_that_is_no_plan_is_refused(content: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        read_plan(tmp_path / "plan.json")
    with pytest.raises(InputError, match="no such file"):
        read_plan(tmp_path / "none.json")


def test_plan_is_put_beside_one_run(tmp_path: Path) -> None:
    runs = made_runs(write_run(tmp_path / "a"), write_run(tmp_path / "b"))
    with pytest.raises(InputError, match="--plan is compared with one run, but there are 2"):
        planned_section(runs, tmp_path / "plan.json")
    assert planned_section(runs, None) is None
