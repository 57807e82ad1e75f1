"""The choice of the place where a run resumes."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.run_record.checkpoint_folder import DamagedCheckpoint
from benchmark.run_record.checkpoint_list import whole_checkpoints
from benchmark.run_record.events.mlperf_log import MlperfLog
from benchmark.run_record.file_names import checkpoint_path
from benchmark.run_record.run_progress import Progress
from benchmark.training.resume_point import ResumePoint, choose_resume_point, fulfil_request, set_aside_damaged
from foundation.errors import InputError
from tests.benchmark.run_record.test_checkpoint_folder import PROGRESS, publish

START = Progress(seed=1, start_samples=48_000, global_batch_size=12, seq_length=16)
Choose = Callable[..., ResumePoint]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for steps in (4, 8, 12):
        publish(tmp_path, steps)
    return tmp_path


@pytest.fixture
def choose(run_dir: Path) -> Choose:
    def chosen(resume_from: int | None = None, launch: str | None = None, folder: Path = run_dir) -> ResumePoint:
        log = MlperfLog(folder / "result_0.txt")
        try:
            return choose_resume_point(folder, START, log, resume_from=resume_from, launch=launch)
        finally:
            log.close()

    return chosen


def test_newest_is_taken_unless_another_is_requested(choose: Choose, run_dir: Path, tmp_path: Path) -> None:
    point = choose()
    assert (point.checkpoint, point.requested, point.reasons) == (12, False, ())
    assert (point.progress.seed, point.progress.restarts) == (PROGRESS.seed, PROGRESS.restarts + 1)
    assert point.log_mark is not None
    point = choose(8)
    assert (point.checkpoint, point.requested) == (8, True)
    assert whole_checkpoints(run_dir) == [4, 8, 12]  # until it is loaded
    (tmp_path / "new").mkdir()
    assert choose(folder=tmp_path / "new") == ResumePoint(START)


@pytest.mark.parametrize("name", ["progress.json", "digests.md5"])
@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", None])
def test_unreadable_checkpoints_are_set_aside(name: str, content: bytes | None, choose: Choose, run_dir: Path) -> None:
    for steps in (8, 12):
        path = checkpoint_path(run_dir, steps) / name
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    point = choose()
    assert point.checkpoint == 4
    assert [line.partition(": set aside")[0] for line in point.reasons] == [
        f"the checkpoint after {steps} steps is damaged ({name})" for steps in (12, 8)
    ]
    folder = f"{run_dir}/checkpoints/set_aside"
    assert point.reasons[0].endswith(f"{folder}/001_damaged; the run resumes from the checkpoint after 8 steps")
    assert point.reasons[1].endswith("002_damaged; the run resumes from the checkpoint after 4 steps")
    (checkpoint_path(run_dir, 4) / name).unlink()
    last = choose()
    assert (last.checkpoint, last.progress, last.log_mark) == (None, START, None)  # its log has no clock that goes on
    assert last.reasons[0].endswith("the run resumes from the initial checkpoint")


def test_checkpoints_that_the_disk_does_not_give_stay(
    choose: Choose, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(run_dir))

    with monkeypatch.context() as patched:
        patched.setattr("benchmark.run_record.checkpoint_folder.read_bounded", fail)
        with pytest.raises(OSError, match="Input/output error"):
            choose()
    assert whole_checkpoints(run_dir) == [4, 8, 12]
    assert choose().checkpoint == 12


def test_line_names_the_first_files(run_dir: Path) -> None:
    damage = DamagedCheckpoint(checkpoint_path(run_dir, 12), [f"__{rank}_0.distcp" for rank in range(250_000)])
    line = set_aside_damaged(run_dir, 12, damage)
    assert "(__0_0.distcp, " in line
    assert "__7_0.distcp and 249992 more)" in line


def test_a_requested_one_must_be_there_and_readable(choose: Choose, run_dir: Path) -> None:
    with pytest.raises(InputError, match=r"checkpoints: no checkpoint of 5 steps; there are: 4, 8, 12"):
        choose(5, "job 1")
    (checkpoint_path(run_dir, 8) / "progress.json").unlink()
    with pytest.raises(DamagedCheckpoint, match=r"step_00000008: progress\.json damaged or missing"):
        choose(8)
    assert whole_checkpoints(run_dir) == [4, 8, 12]


def test_a_request_is_met_once_in_a_launch(choose: Choose, run_dir: Path) -> None:
    fulfil_request(run_dir, choose(8, "job 1"), "job 1")
    assert whole_checkpoints(run_dir) == [4, 8]
    assert [path.name for path in (run_dir / "checkpoints" / "set_aside").iterdir()] == ["001_back_to_8"]
    publish(run_dir, 12)
    assert choose(8, "job 1").checkpoint == 12  # a restart, or a requeued job
    fulfil_request(run_dir, choose(), "job 1")  # of a point that nobody requested: nothing happens
    assert whole_checkpoints(run_dir) == [4, 8, 12]
    assert choose(4, "job 1").checkpoint == 4
    for launch in ("job 2", None):  # somebody asks again
        point = choose(8, launch)
        assert (point.checkpoint, point.requested) == (8, True)
    (run_dir / "checkpoints" / "resumed_from.json").write_text("{")
    assert choose(8, "job 1").checkpoint == 8
