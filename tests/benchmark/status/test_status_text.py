"""What ``status`` prints of one run, of several, and as JSON."""

import json
from pathlib import Path

import pytest

from benchmark.status.status_text import run_folders, status
from stage.errors import InputError
from tests.benchmark.report.runs import write_run
from tests.benchmark.status.supervised_run import killed_and_hung


def test_one_run_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status([killed_and_hung(tmp_path / "run")], as_json=False, follow=True)  # it has ended: printed once
    text = capsys.readouterr().out
    for words in (
        "run: success, last heard of at 2023-11-14 22:15:3",
        "goodput 2.9% of 2 min 17 s, 5.2% without the queue: 3 attempts, 8 steps kept, 5 lost",
        "  hang             36.00 s   26.2%  from the last sign of life until the processes were ended",
        "0002     2023-11-14 22:15:22Z  hang                  3      3    46.60 s  again",
        "rank 2 on n2 hangs; starting again from step 4 on",
    ):
        assert words in text


def test_folder_of_runs_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed_and_hung(tmp_path / "run_1")
    write_run(tmp_path / "run_0")
    (tmp_path / "dataset").mkdir()
    status([tmp_path], as_json=False, follow=False)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["run", "state", "step", "loss"]
    assert first.startswith("run_0 ") and "46.2%" in first
    assert second.startswith("run_1  success") and "2.9%" in second


def test_json_has_every_kind_and_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status([killed_and_hung(tmp_path / "run")], as_json=True, follow=False)
    found = json.loads(capsys.readouterr().out)
    assert sum(found["seconds"].values()) == pytest.approx(found["whole_s"])
    assert (found["state"], found["steps"], found["devices"]) == ("success", {"kept": 8, "lost": 5, "skipped": 0}, 4)
    assert [row["kind"] for row in found["attempts"]] == ["killed", "hang", "finished"]


def test_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected the folder of a run, or a folder of such folders"):
        run_folders([tmp_path])
