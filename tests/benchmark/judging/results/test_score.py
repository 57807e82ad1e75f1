"""Score and speed of three runs; those of published results are in tests/benchmark/judging/review/test_published.py."""

import json
from pathlib import Path

import pytest

from benchmark.judging.results.score import middle_run, score
from benchmark.judging.results.subjects import ResultSet, SubmissionPackage, find_subjects
from tests.benchmark.judging.review.fixture import SYSTEM, Log, T, as_text, records, write_package


def set_of(package: Path) -> ResultSet:
    (one,) = SubmissionPackage(package, "4.1.0").sets
    return one


def late(seed: int, seconds: int) -> Log:
    log = Log(records(seed))
    log.shift(log.place("run_stop"), 1000 * seconds)
    return log


def write_logs(package: Path, *logs: Log) -> ResultSet:
    for number, log in enumerate(logs):
        (package / "results" / SYSTEM / "gpt3" / f"result_{number}.txt").write_text(as_text(log.records))
    return set_of(package)


def test_middle_time_and_speed_of_three_runs(tmp_path: Path) -> None:
    found = score(write_logs(write_package(tmp_path), late(1, 60), late(2, 0), late(3, 30)))
    assert (found.name, found.submitter, found.platform, found.batch_size) == (SYSTEM, "ACME", "ACME-H100-n64", 2048)
    assert [run.seed for run in found.runs] == [1, 2, 3]
    assert found.measured_minutes == found.runs[2].minutes == pytest.approx(52.5, abs=0.01)
    assert (found.factor, found.minutes, found.why_no_score) == (1, found.measured_minutes, None)
    assert (found.accelerators, found.accelerator) == (512, "NVIDIA H100-SXM5-80GB")
    assert found.tokens_per_s_per_accelerator == pytest.approx(24 * T / (52.5 * 60) / 512, rel=1e-3)
    assert found.mfu == pytest.approx((found.tflops_per_accelerator or 0) / 989.4)
    first = found.runs[0]
    assert first.evaluation_share == pytest.approx(240 / (53 * 60), rel=1e-3)
    assert first.init_share == pytest.approx(200 / (200 + 53 * 60), rel=1e-3)


@pytest.mark.parametrize(
    ("disclosed", "peak_format", "times"),
    [("bfloat16", "BF16", 1), ("tf32", "BF16", 1), ("fp8", "FP8", 2), ("nvfp4", "NVFP4", 4)],
)
def test_mfu_is_of_the_peak_in_the_disclosed_format(
    disclosed: str, peak_format: str, times: float, tmp_path: Path
) -> None:
    logs = [late(seed, 0) for seed in (1, 2, 3)]
    for log in logs:
        log.set("lowest_numerical_precision_in_linear", disclosed)
    found = score(write_logs(write_package(tmp_path), *logs))
    assert (found.peak_format, found.peak_tflops) == (peak_format, times * 989.4)
    assert found.mfu == pytest.approx((found.tflops_per_accelerator or 0) / (times * 989.4))


def test_score_of_a_package_is_scaled_by_its_scaling_file_and_by_nothing_else(tmp_path: Path) -> None:
    """As the official summarizer does on the package as it is given."""
    package = write_package(tmp_path, lambda seed: records(seed, evaluations=23))
    found = score(set_of(package))
    assert (found.factor, found.minutes) == (1, found.measured_minutes)
    assert found.reference_factor == pytest.approx(1.0174, abs=5e-5)
    path = package / "results" / SYSTEM / "gpt3" / "scaling.json"
    path.write_text('{"scaling_factor": 1.25}')
    found = score(set_of(package))
    assert found.minutes == pytest.approx(1.25 * (found.measured_minutes or 0))
    for content, problem in (("[]", "no number"), ('{"scaling_factor": NaN}', "no number"), ("{", "not JSON")):
        path.write_text(content)
        found = score(set_of(package))
        assert found.minutes is None
        assert f"scaling.json: {problem}" in (found.why_no_score or "")
    for number in range(3):
        (tmp_path / f"result_{number}.txt").write_text(as_text(records(number, evaluations=23)))
    (one,) = find_subjects([tmp_path / f"result_{number}.txt" for number in range(3)], None)
    assert isinstance(one, ResultSet)
    found = score(one)  # of no package: the reference points scale it
    assert found.factor == found.reference_factor == pytest.approx(1.0174, abs=5e-5)
    assert found.minutes == pytest.approx((found.measured_minutes or 0) * found.factor)


def test_one_failed_run_counts_as_the_slowest(tmp_path: Path) -> None:
    failed = late(2, 0)
    failed.set("eval_accuracy", 2.6901, -1)
    failed.metadata("run_stop", status="aborted")
    package = write_package(tmp_path)
    found = score(write_logs(package, late(1, 0), failed, late(3, 60)))
    assert middle_run([]) is None
    assert found.measured_minutes == found.runs[2].minutes
    found = score(write_logs(package, failed, failed, late(3, 60)))
    assert (found.minutes, found.why_no_score) == (None, "more than one run did not converge")


def test_accelerators_by_the_configuration_beside_a_log_of_ours(tmp_path: Path) -> None:
    (tmp_path / "result_0.txt").write_text(as_text(records(1)))
    one = ResultSet("run", "4.1.0", [tmp_path / "result_0.txt"], tmp_path)
    config = tmp_path / "config.json"
    assert (score(one).accelerators, score(one).mfu) == (None, None)
    config.write_text("{")
    assert score(one).accelerators is None
    system = {"device": "cuda", "accelerator": "H100", "nodes": 2, "devices_per_node": 8}
    config.write_text(json.dumps({"result_number": 0, "system": system}))
    found = score(one)
    assert (found.accelerators, found.accelerator, found.peak_tflops) == (16, "H100", 989.4)
    log = Log(records(1))
    log.without("lowest_numerical_precision_in_linear")
    (tmp_path / "result_0.txt").write_text(as_text(log.records))
    config.write_text(json.dumps({"result_number": 0, "system": system, "precision": "fp8"}))
    one = ResultSet("run", "4.1.0", [tmp_path / "result_0.txt"], tmp_path)
    assert (score(one).peak_format, score(one).peak_tflops) == ("FP8", 1978.8)
    assert found.why_no_score == "a score takes 3 runs, there is 1"
