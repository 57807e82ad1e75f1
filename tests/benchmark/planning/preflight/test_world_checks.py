"""Checks of several processes find what they are for."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.systems import SYSTEMS
from benchmark.planning.preflight import run_checks, world_checks
from benchmark.planning.preflight.preflight_check import CheckingProcess, CheckResult, PreflightCheck
from tests.benchmark.planning.preflight.places import alone
from tests.benchmark.tiny import Inputs, in_processes

PAIR = SYSTEMS["cpu_p2"]


def test_links_and_clocks_that_stand_out() -> None:
    process: Any = dataclasses.replace(alone(None), kind="cuda", world=object())  # type: ignore[arg-type]
    near, far = world_checks.Timed(True, 300.0, "within a machine"), world_checks.Timed(True, 40.0, "between machines")
    links = [("a", near), ("b", far), ("c", far)]
    assert world_checks.links_alike(process, links).outcome == "ok"
    slow = ("d", world_checks.Timed(True, 10.0, "between machines"))
    finding = world_checks.links_alike(process, [*links, slow])
    assert (finding.outcome, finding.text.startswith("d receives 10.00 GB/s between machines")) == ("warning", True)
    assert world_checks.links_alike(dataclasses.replace(process, kind="cpu"), [*links, slow]).outcome == "ok"
    assert world_checks.links_alike(process, [("a", world_checks.Timed(False, 1.0, "x"))]).outcome == "FAILED"
    assert world_checks.right_sums(process, [("a", world_checks.Timed(False, 1.0))]).outcome == "FAILED"
    assert world_checks.clocks_agree(process, [("a", 100.0), ("b", 101.5), ("c", 100.2)]).text == "a is 1.5 s behind b"


def _rows(inputs: Inputs, run_dir: Path) -> dict[str, Any]:
    """Rows as this rank sees them; also of a check that fails on rank 1, and of folders that are not shared."""
    config = inputs.config(run_dir, system=PAIR)
    rows = {}
    world_checks.MOST_APART_S = 60.0  # a busy machine may keep one of them from looking at its clock
    with run_checks._checking_process(config) as process:

        def measure(process: CheckingProcess) -> CheckResult:
            if process.environment.rank == 1:
                raise ValueError("no such thing")
            return CheckResult("ok", "fine")

        rows["raises"] = run_checks.row_of(PreflightCheck("raises", "", "process", measure), process)
        for name in ("all-reduce", "ring", "shared folder", "clocks"):
            rows[name] = run_checks.row_of(next(check for check in run_checks.CHECKS if check.name == name), process)
        world_checks.PATIENCE_S = 0.5
        own = run_dir / str(process.environment.rank)
        own.mkdir(parents=True)
        apart = dataclasses.replace(process, config=dataclasses.replace(config, run_dir=own))
        rows["apart"] = run_checks.row_of(PreflightCheck("apart", "", "process", world_checks.shared_folder), apart)
    return rows


@pytest.mark.slow
def test_two_processes(inputs: Inputs, tmp_path: Path) -> None:
    rows, others = in_processes(2, _rows, inputs, tmp_path)
    assert set(others.values()) == {None}
    assert rows["raises"]["outcome"] == "FAILED"
    assert "rank 1: ValueError: no such thing" in rows["raises"]["found"]
    for name in ("all-reduce", "ring", "shared folder", "clocks"):
        assert rows[name]["outcome"] == "ok", rows[name]
    assert rows["apart"]["outcome"] == "FAILED"
    assert "is another folder than rank 0's" in rows["apart"]["found"]
    assert not list(tmp_path.rglob(".preflight-*"))


def _status(inputs: Inputs, run_dir: Path) -> int:
    return run_checks.run_checks(inputs.config(run_dir, system=PAIR), as_json=True)


@pytest.mark.slow
def test_every_process_has_the_status(inputs: Inputs, tmp_path: Path) -> None:
    assert in_processes(2, _status, inputs, tmp_path / "run") == [0, 0]
    (tmp_path / "summary.json").touch()
    assert in_processes(2, _status, inputs, tmp_path) == [1, 1]
