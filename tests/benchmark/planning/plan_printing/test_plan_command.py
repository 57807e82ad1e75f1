"""``plan --search`` and ``plan --backtest`` as they are called."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.__main__ import main
from benchmark.planning.plan_printing.plan_command import whole_system
from benchmark.planning.run_plans.calibration import Calibration, write_calibration
from stage.errors import InputError
from tests.benchmark.planning.run_plans.test_calibration import CALIBRATION


def test_backtest_needs_no_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--backtest", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["comparisons"]
    assert {"id", "stack", "url", "published_s", "predicted_s", "error", "used", "guessed"} <= rows[0].keys()


def test_another_stack_without_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "gpt3_175b", "--global-batch-size", "2048", "--pipeline-chunks", "6", "--stack", "nemo"]
    assert main([*words, "--precision", "fp8", "--watts", "1400", "--dollars-per-hour", "2.5", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["precision"], made["stack"], made["dry_run"]) == ("fp8", "nemo", None)
    assert made["step_s"] > 0
    assert made["mfu"] > 0.6
    assert made["costs"]["kwh_interval"][0] < made["costs"]["kwh"] < made["costs"]["kwh_interval"][1]


def slower(factor: float) -> Calibration:
    """As a slice of a GPU whose matrix products take so many times as long."""
    products = [replace(each, seconds=each.seconds * factor) for each in CALIBRATION.matmuls]
    return replace(CALIBRATION, matmuls=tuple(products), attention=(), elementwise=())


def test_the_whole_system_with_the_rates_of_a_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [whole_system(slower(factor)) for factor in (1.0, 1.5)]
    steps = [float(line.split()[3]) for line in lines if line is not None]
    assert 1.2 < steps[1] / steps[0] < 1.5
    assert whole_system(replace(CALIBRATION, true_width=False)) is None
    assert whole_system(replace(CALIBRATION, accelerator="")) is None
    write_calibration(slower(1.5), tmp_path / "calibration.json")
    words = ["plan", "gpt3_175b", "--stack", "megatron", "--json"]
    assert main(words) == 0
    assert main([*words, "--calibration", str(tmp_path / "calibration.json")]) == 0
    plain, calibrated = (json.loads(line)["step_s"] for line in capsys.readouterr().out.splitlines())
    assert calibrated != plain
    with pytest.raises(InputError, match="measured on H100 SXM, but system h200_n8 has H200; choose another --system"):
        main([*words, "--system", "h200_n8", "--calibration", str(tmp_path / "calibration.json")])
    with pytest.raises(InputError, match=r"none\.json: No such file"):
        main([*words, "--calibration", str(tmp_path / "none.json")])


def test_bad_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="stack ours has no fp8"):
        main(["plan", "gpt3_175b", "--precision", "fp8"])
    with pytest.raises(InputError, match="leave out --mfu"):
        main(["plan", "gpt3_175b", "--search", "--mfu", "0.4"])
    with pytest.raises(InputError, match="--search: the memory of the device is not known"):
        main(["plan", "rehearsal", "--search"])
    assert capsys.readouterr().out == ""
