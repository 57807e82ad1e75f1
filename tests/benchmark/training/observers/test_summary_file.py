"""What a run leaves when it ends."""

import dataclasses
import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmark.run_record.endings import Ending, StopReason
from benchmark.run_record.events.event import Event
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.events.mlperf_log import MlperfLog
from benchmark.run_record.file_names import checkpoint_path
from benchmark.run_record.run_progress import Evaluation, starting_progress
from benchmark.training.observers.summary_file import StopNoteFile, SummaryFile
from tests.benchmark.run_record.events.recorder import Recorder
from tests.benchmark.tiny import CPU, SHORT


def ended(run_dir: Path, ending: Ending, why: str = "") -> tuple[list[str], list[Any]]:
    """Names of the files that a run of six steps leaves, and what it says."""
    progress, seen = starting_progress(SHORT, 17), list[Event]()
    log = EventLog([Recorder(seen.append)])
    state: Any = SimpleNamespace(progress=progress, system=CPU)
    mlperf_log = MlperfLog(run_dir / "result_0.txt")
    run_log: Any = SimpleNamespace(events=log, require_lease=lambda: None)
    summary = SummaryFile(run_dir, mlperf_log, state, run_log)
    note = StopNoteFile(run_dir, state, run_log, saves=True)
    summary.begin()
    progress.steps, progress.evaluations = 6, [Evaluation(1152, 4.5)]
    for observer in (summary, note):
        observer.end(StopReason(ending, why))
    log.close()
    names = {path.name for path in run_dir.iterdir() if path.is_file()}
    return sorted(names - {"result_0.txt"}), [event.value for event in seen]


@pytest.mark.parametrize("ending", ["success", "target not reached"])
def test_run_that_is_done_leaves_its_summary(ending: Ending, tmp_path: Path) -> None:
    assert ended(tmp_path, ending) == (["summary.json"], [])
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["seed"], summary["trained_tokens"], summary["trained_samples"]) == (
        ending,
        17,
        1152,
        72,
    )
    assert summary["evaluations"] == [{"trained_tokens": 1152, "log_perplexity": 4.5}]
    assert summary["tokens_per_s"] == pytest.approx(1152 / summary["run_s"])


def test_run_that_failed_leaves_nothing(tmp_path: Path) -> None:
    assert ended(tmp_path, "failed") == ([], [])


@pytest.mark.parametrize("saved", [True, False])
def test_interrupted_run_says_why_and_whether_it_is_saved(saved: bool, tmp_path: Path) -> None:
    checkpoint_path(tmp_path, 6 if saved else 4).mkdir(parents=True)
    names, said = ended(tmp_path, "interrupted", "exit trigger")
    assert names == ["stopped.json"]
    assert json.loads((tmp_path / "stopped.json").read_text()) == {"by": "exit trigger", "steps": 6, "saved": saved}
    assert said == ([] if saved else ["step 6 is not saved: the run resumes from an older checkpoint"])


def test_no_summary_before_the_log_has_its_end(tmp_path: Path) -> None:
    mlperf_log = MlperfLog(tmp_path / "result_0.txt")

    def refuse(event: Event) -> None:
        raise OSError(errno.EIO, "Input/output error")

    setattr(mlperf_log, "write", refuse)  # noqa: B010
    log = EventLog([mlperf_log])
    progress = starting_progress(SHORT, 17)
    state: Any = SimpleNamespace(progress=progress, system=dataclasses.replace(CPU, start_limit_s=1.0))
    run_log: Any = SimpleNamespace(events=log, require_lease=lambda: None)
    summary = SummaryFile(tmp_path, mlperf_log, state, run_log)
    summary.begin()
    log.end("run_stop", status="success")
    with pytest.raises(OSError, match="lines of the end could not be written"):
        summary.end(StopReason("success", "target reached", reached_target=True))
    assert not (tmp_path / "summary.json").exists()
