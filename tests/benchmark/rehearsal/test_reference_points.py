"""The file of convergence points."""

import json
from pathlib import Path

import pytest
from mlperf_logging.rcp_checker.rcp_checker import RCP_Checker

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import REHEARSAL, REHEARSAL_LLAMA, REHEARSALS
from benchmark.rehearsal import reference_points
from benchmark.rehearsal.reference_points import rehearse_seeds, write_reference_points
from benchmark.training.same_run import as_json
from foundation.errors import CheckFailed
from tests.support import REPOSITORY, assert_refused, command


def write_run(folder: Path, tokens: int, status: str = "success", of: Benchmark = REHEARSAL, **changes: object) -> Path:
    folder.mkdir()
    benchmark = {**as_json(of), **changes}
    (folder / "config.json").write_text(json.dumps({"benchmark": benchmark}))
    (folder / "summary.json").write_text(
        json.dumps({"status": status, "trained_tokens": tokens, "trained_samples": tokens // 128})
    )
    return folder


def test_points_of_several_runs(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(tokens), tokens) for tokens in (425984, 458752, 491520)]
    output = tmp_path / "points.json"
    done = command("benchmark", "reference-points", *runs, "--output", output)
    assert "3 runs, samples to target 3584.0, sd 256.0" in done.stdout
    (points,) = json.loads(output.read_text()).values()
    assert points["Epochs to converge"] == [425984, 458752, 491520]
    assert points["BS"] == 16


def test_points_of_a_benchmark_whose_log_counts_samples(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(tokens), tokens, of=REHEARSAL_LLAMA) for tokens in (163840, 180224)]
    assert "2 runs, samples to target 1344.0" in write_reference_points(runs, tmp_path / "points.json")
    (points,) = json.loads((tmp_path / "points.json").read_text()).values()
    assert points["Epochs to converge"] == [1280, 1408]


@pytest.mark.slow
def test_mean_deviation_and_smallest_accepted_median(tmp_path: Path) -> None:
    """Those of the official checker, which takes the smallest accepted mean from a search."""
    committed = json.loads((REPOSITORY / "benchmark" / "judging" / "results" / "rehearsal_points.json").read_text())
    (points,) = committed.values()
    tokens = points["Epochs to converge"]
    runs = [write_run(tmp_path / str(number), count) for number, count in enumerate(tokens)]
    done = command("benchmark", "reference-points", *runs, "--output", tmp_path / "points.json")
    (written,) = json.loads((tmp_path / "points.json").read_text()).values()
    official = RCP_Checker("training", "4.1.0", "gpt3", False)
    official.rcp_data = official._process_raw_rcp_data(committed)
    official.compute_rcp_stats()
    (record,) = official.rcp_data.values()
    for name in ("RCP Mean", "RCP Stdev"):
        assert written[name] == pytest.approx(record[name], rel=1e-12)
    assert written["Min Epochs"] == pytest.approx(record["Min Epochs"], abs=1e-3)
    assert f"accepted from {record['Min Epochs'] / 128:.1f}" in done.stdout


def test_runs_are_made_until_there_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "run_0", 425984)

    def finished_run(_: Benchmark, work_dir: Path) -> int:
        number = len(list(work_dir.glob("run_*")))
        write_run(work_dir / f"run_{number}", 458752)
        return 0

    monkeypatch.setattr(reference_points, "rehearse", finished_run)
    assert rehearse_seeds(REHEARSAL, 3, tmp_path) == [tmp_path / f"run_{number}" for number in range(3)]
    assert rehearse_seeds(REHEARSAL, 0, tmp_path) == []
    monkeypatch.setattr(reference_points, "rehearse", lambda *_: 1)
    with pytest.raises(CheckFailed, match="run 4 of 5 ended with exit status 1"):
        rehearse_seeds(REHEARSAL, 5, tmp_path)


def test_runs_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    good = write_run(tmp_path / "good", 1)
    failed = write_run(tmp_path / "failed", 1, status="target not reached")
    other = write_run(tmp_path / "other", 1, target_log_perplexity=3.0)
    for run, complaint in (
        (failed, "target not reached"),
        (other, "target_log_perplexity is 3.0"),
        (tmp_path, "missing"),
    ):
        done = command("benchmark", "reference-points", good, run, "--output", tmp_path / "points.json")
        assert_refused(done, complaint)


@pytest.mark.parametrize("benchmark", REHEARSALS.values(), ids=REHEARSALS)
def test_committed_points_are_the_rehearsals(benchmark: Benchmark) -> None:
    file = REPOSITORY / "benchmark" / "judging" / "results" / f"{benchmark.name}_points.json"
    (points,) = json.loads(file.read_text()).values()
    assert points["Benchmark"] == benchmark.mlperf_name
    assert points["BS"] == benchmark.global_batch_size
    assert points["Hyperparams"]["target_log_perplexity"] == benchmark.target_log_perplexity
    assert points["Hyperparams"]["opt_base_learning_rate"] == benchmark.optimizer.lr
    assert len(points["Epochs to converge"]) >= 6
