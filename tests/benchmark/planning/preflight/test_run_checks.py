"""All checks of a machine and a run, in one process and in several; the exit status says whether one failed."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from benchmark.__main__ import main
from benchmark.planning.preflight import device_checks, machine_checks, run_checks
from benchmark.planning.preflight.preflight_check import CheckResult, worst
from foundation.errors import InputError
from tests.benchmark.planning.preflight.places import alone, large
from tests.benchmark.tiny import Inputs


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


def test_command_as_it_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "summary.json").touch()
    words = ["preflight", "rehearsal", "--run-dir", str(tmp_path), "--checkpoint", str(tmp_path / "none")]
    assert main(words) == 1
    lines = capsys.readouterr().out.splitlines()  # folded to the screen
    assert any(line.startswith("FAILED   run folder") for line in lines)
    assert "--train-data-path is missing" in " ".join(" ".join(lines).split())
    assert "2 FAILED" in lines[-1]


def test_the_worst_of_several_is_named() -> None:
    fine, bad = CheckResult("ok", "fine"), CheckResult("FAILED", "broken", "mend it")
    assert worst(alone(None), [("a", fine), ("b", fine)]) == fine
    assert worst(alone(None), [("a", fine), ("b", bad)]) == CheckResult("FAILED", "b: broken", "mend it")
    many = [("a", fine), *((f"b{number}", bad) for number in range(5))]
    assert worst(alone(None), many).text == "b0: broken; b1: broken; b2: broken; and 2 more"


def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
    for words, complaint in (
        (["gpt4"], "unknown benchmark 'gpt4'"),
        (["--jsno"], "--jsno"),
        (["gpt3_175b", "--global-batch-size", "100"], "global_batch_size 100 is not a multiple"),
    ):
        with pytest.raises(InputError, match=complaint):
            main(["preflight", *words])
    assert main(["preflight", "--help"]) == 0
    assert "Example: srun python -m benchmark preflight" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_what_cannot_be_measured_and_gpus_that_are_not_there_are_never_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(device_checks.SIZE, "cuda", 64)
    (tmp_path / "file").touch()
    process = dataclasses.replace(alone(large(tmp_path / "file" / "run")), kind="cuda")
    rows = {check.name: run_checks.row_of(check, process) for check in run_checks.CHECKS}
    for name in ("run folder", "devices", "device memory", "products", "speed"):
        assert rows[name]["outcome"] == "FAILED", rows[name]  # type: ignore[index]
    assert "NotADirectoryError" in rows["run folder"]["found"]  # type: ignore[index]
