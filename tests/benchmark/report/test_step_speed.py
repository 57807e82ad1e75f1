"""Arithmetic of a step."""

from pathlib import Path

import pytest

from benchmark.report.step_speed import Speed, speed_of
from benchmark.results.recorded_run import read_recorded_run
from benchmark.results.score import score
from benchmark.results.subjects import find_subjects
from tests.benchmark.review.fixture import SYSTEM, records, write_package, write_run


def test_share_of_one_accelerator_and_its_peak(tmp_path: Path) -> None:
    results = write_package(tmp_path) / "results" / SYSTEM / "gpt3"
    (one,) = find_subjects([results], None)
    run = read_recorded_run(results / "result_0.txt")
    speed = speed_of(run, score(one))  # type: ignore[arg-type]
    assert speed.tflop_per_step == pytest.approx(2048 * 2048 * 1.0764 / 512, rel=1e-4)  # 1.0764e12 for a token
    assert speed.peak_tflops == 989.4


def test_speed_of_unknown_devices_is_not_told(tmp_path: Path) -> None:
    run = read_recorded_run(write_run(tmp_path, records(1)))
    (one,) = find_subjects([tmp_path], None)
    assert speed_of(run, None) == speed_of(run, score(one)) == Speed(None, None)  # type: ignore[arg-type]
