"""The command: its table, its words for what does not exist."""

import json
from pathlib import Path

import pytest

from benchmark.drills import run_drills as run_drills_module
from benchmark.drills.catalogue.drill_table import DRILLS
from benchmark.drills.drill_result import DrillResult
from benchmark.drills.run_drills import Drills, listed, row, run_drills
from stage.errors import InputError
from tests.support import assert_refused, command

RIGHT = DrillResult("kill-all", "healed", (), 2, 3, 0.26, 1.5, 9.0, True, "kill", "gone")
WRONG = DrillResult("kill-all", "stopped", ("status 1, expected 2",), 2, 3, None, None, 9.0, None, "kill", "gone")


def test_rows() -> None:
    assert row(RIGHT).split() == "kill-all healed 2 3 0.3 s 1.5 s 9.0 s yes".split()
    lines = row(WRONG).splitlines()
    assert lines[0].split() == "kill-all stopped 2 3 - - 9.0 s NO".split()
    assert [line.strip() for line in lines[1:]] == ["status 1, expected 2", "injected: kill", "said: gone"]


@pytest.mark.parametrize(("result", "status"), [(RIGHT, 0), (WRONG, 1)])
def test_status_says_whether_all_came_out_right(
    result: DrillResult,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run_drills_module, "prepared_inputs", lambda work_dir: None)
    monkeypatch.setattr(Drills, "run", lambda self, drill: result)
    assert run_drills(["kill-all", "exception"], tmp_path, as_json=True) == status
    printed = json.loads(capsys.readouterr().out)
    assert printed["right"] == (status == 0)
    assert [drill["right"] for drill in printed["drills"]] == [status == 0] * 2
    assert run_drills([], tmp_path, fuzz=3) == status
    assert "of 3 came out right" in capsys.readouterr().out


def test_list_names_every_drill_and_its_incident() -> None:
    for drill in DRILLS.values():
        assert drill.name in listed()
        assert drill.covers in listed()


def test_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown drill 'kill-none'; python -m benchmark drill --list"):
        run_drills(["kill-none"], tmp_path / "work")
    assert_refused(command("benchmark", "drill", "kill-none", "--work-dir", tmp_path / "work"), "unknown drill")
    assert not (tmp_path / "work").exists()
