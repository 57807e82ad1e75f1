"""All checks of a machine and a run, in one process and in several; the exit status says whether one failed."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from benchmark.__main__ import main
from benchmark.config.systems import SYSTEMS
from benchmark.preflight.checks import machine_checks, run_checks
from stage.errors import InputError
from tests.benchmark.preflight.checks.places import alone, large
from tests.benchmark.tiny import Inputs, in_processes
from tests.support import command as run_command

PAIR = SYSTEMS["cpu_p2"]


def outcomes(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return {row["name"]: row["outcome"] for row in json.loads(capsys.readouterr().out)["checks"]}


def test_a_machine_and_a_run_that_are_fine(
    inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_checks, "LOG_BYTES", 1000)
    assert run_checks.run_checks(inputs.config(tmp_path / "run", save_interval=5), as_json=True) == 0
    found = outcomes(capsys)
    assert list(found) == [check.name for check in run_checks.CHECKS]
    needed = ("packages", "devices", "products", "host memory", "disk space", "run folder", "inputs", "clock")
    assert {name: found[name] for name in needed} == dict.fromkeys(needed, "ok")
    assert found["all-reduce"] == found["speed"] == "skipped"
    assert not (tmp_path / "run").exists()
    assert list(tmp_path.iterdir()) == []


def test_command_as_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "summary.json").touch()
    done = run_command("benchmark", "preflight", "rehearsal", "--run-dir", tmp_path, "--checkpoint", tmp_path / "none")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED   run folder     " in done.stdout
    assert "--train-data-path is missing" in done.stdout
    assert "2 FAILED" in done.stdout.splitlines()[-1]


def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
    for words, complaint in (
        (["gpt4"], "unknown benchmark 'gpt4'"),
        (["--jsno"], "which benchmark"),
        (["gpt3_175b", "--global-batch-size", "100"], "global_batch_size 100 is not a multiple"),
    ):
        with pytest.raises(InputError, match=complaint):
            main(["preflight", *words])
    assert main(["preflight", "--help"]) == 0
    assert "Example: srun python -m benchmark preflight" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_what_cannot_be_measured_and_gpus_that_are_not_there_are_never_fine(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = dataclasses.replace(alone(large(tmp_path / "file" / "run")), kind="cuda")
    rows = {check.name: run_checks.row_of(check, place) for check in run_checks.CHECKS}
    for name in ("run folder", "devices", "device memory", "products", "speed"):
        assert rows[name]["outcome"] == "FAILED", rows[name]  # type: ignore[index]
    assert "NotADirectoryError" in rows["run folder"]["found"]  # type: ignore[index]


def _status(inputs: Inputs, run_dir: Path) -> int:
    return run_checks.run_checks(inputs.config(run_dir, system=PAIR), as_json=True)


@pytest.mark.slow
def test_every_process_has_the_status(inputs: Inputs, tmp_path: Path) -> None:
    assert in_processes(2, _status, inputs, tmp_path / "run") == [0, 0]
    (tmp_path / "summary.json").touch()
    assert in_processes(2, _status, inputs, tmp_path) == [1, 1]
