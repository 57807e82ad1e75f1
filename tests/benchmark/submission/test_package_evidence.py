"""Evidence in a package: it fits its log, and a replay can start from what is there."""

from pathlib import Path

import pytest

from benchmark.replay.recorded_config import Replacements
from benchmark.replay.replay_run import ReplayOptions, replay
from benchmark.results.recorded_run import read_recorded_run
from benchmark.submission.package_evidence import copy_evidence, require_evidence_holds
from stage.errors import InputError
from tests.benchmark.replay.conftest import honest_run, run_dir
from tests.benchmark.replay.forged import edit_log, of_key

__all__ = ["honest_run", "run_dir"]


def test_a_reviewer_starts_from_the_package(run_dir: Path, tmp_path: Path) -> None:
    result = read_recorded_run(run_dir)
    (line,) = require_evidence_holds([result])
    assert line.startswith("evidence of result_0: 6 steps, last digest ")
    package = tmp_path / "ACME"
    evidence = package / "benchmarks" / "gpt3" / "implementations" / "SYSTEM" / "evidence"
    copy_evidence(evidence, [result])
    assert sorted(path.name for path in (evidence / "result_0").iterdir()) == ["config.json", "evidence.jsonl"]
    place = evidence / ".." / "evidence" / "result_0"
    options = ReplayOptions(place, "0:6", Replacements(), without_training=True)
    with pytest.raises(InputError, match=r"result_0\.txt: no such file; give the run's MLPerf log with --log"):
        replay(options)
    log = package / "results" / "SYSTEM" / "gpt3" / "result_0.txt"
    log.parent.mkdir(parents=True)
    log.write_bytes(result.path.read_bytes())
    found = replay(options)
    assert found is not None
    assert (found.deviations, found.compared_steps) == ((), 6)


def test_a_log_that_does_not_fit_is_refused(run_dir: Path) -> None:
    edit_log(run_dir, of_key("eval_accuracy", lambda record: {**record, "value": 2.0}))
    with pytest.raises(
        InputError, match=r"step 3: log perplexity in the log: recorded 2\.0, found 4.*, and 2 more; give"
    ):
        require_evidence_holds([read_recorded_run(run_dir)])


def test_a_run_without_evidence(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "evidence.jsonl").unlink()
    assert require_evidence_holds([read_recorded_run(run_dir)]) == []
    copy_evidence(tmp_path / "evidence", [read_recorded_run(run_dir)])
    assert not (tmp_path / "evidence").exists()
