"""Evidence in a package: it fits its log, and a replay can start from what is there."""

from pathlib import Path

import pytest

from benchmark.evidence.chain import EVIDENCE, broken_links, read_chain
from benchmark.results.recorded_run import read_recorded_run
from benchmark.submission.package_evidence import copy_evidence, require_evidence_holds
from stage.errors import InputError


def test_evidence_is_carried(run_dir: Path, tmp_path: Path) -> None:
    result = read_recorded_run(run_dir)
    (line,) = require_evidence_holds([result])
    assert line.startswith("evidence of result_0: 6 steps, last digest ")
    copy_evidence(tmp_path / "evidence", [result])
    (path,) = (tmp_path / "evidence" / "result_0").iterdir()
    assert path.name == EVIDENCE
    assert broken_links(read_chain(path), result.path) == []


def test_a_log_that_does_not_fit_is_refused(run_dir: Path) -> None:
    log = run_dir / "result_0.txt"
    log.write_text(log.read_text() + "\n")
    with pytest.raises(InputError, match=r"line 13, step 6: SHA-256 of result_0\.txt.*; give the run as it was made"):
        require_evidence_holds([read_recorded_run(run_dir)])


def test_a_run_without_evidence(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / EVIDENCE).unlink()
    assert require_evidence_holds([read_recorded_run(run_dir)]) == []
    copy_evidence(tmp_path / "evidence", [read_recorded_run(run_dir)])
    assert not (tmp_path / "evidence").exists()
