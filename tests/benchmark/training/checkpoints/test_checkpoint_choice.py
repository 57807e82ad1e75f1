"""Which checkpoint a run goes on from."""

from pathlib import Path

import pytest

from benchmark.training.checkpoints.checkpoint_choice import (
    choose_checkpoint,
    go_back,
    newest_readable,
    set_aside_damaged,
)
from benchmark.training.checkpoints.checkpoint_folder import DamagedCheckpoint, checkpoint_path, whole_checkpoints
from foundation.errors import InputError
from tests.benchmark.training.checkpoints.test_checkpoint_folder import PROGRESS, publish


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for steps in (4, 8, 12):
        publish(tmp_path, steps)
    return tmp_path


def test_newest_is_taken_unless_another_is_asked_for(run_dir: Path, tmp_path: Path) -> None:
    choice = newest_readable(run_dir)
    assert (choice.steps, choice.progress, choice.asked_for, choice.lines) == (12, PROGRESS, False, ())
    choice = choose_checkpoint(run_dir, 8, None)
    assert (choice.steps, choice.progress, choice.asked_for) == (8, PROGRESS, True)
    assert whole_checkpoints(run_dir) == [4, 8, 12]  # until it is loaded
    assert newest_readable(tmp_path / "new").steps is None


@pytest.mark.parametrize("name", ["progress.json", "digests.md5"])
@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", None])
def test_those_that_cannot_be_read_are_set_aside(name: str, content: bytes | None, run_dir: Path) -> None:
    for steps in (8, 12):
        path = checkpoint_path(run_dir, steps) / name
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    choice = newest_readable(run_dir)
    assert (choice.steps, choice.progress) == (4, PROGRESS)
    assert [line.partition(": set aside")[0] for line in choice.lines] == [
        f"the checkpoint after {steps} steps is damaged ({name})" for steps in (12, 8)
    ]
    assert choice.lines[0].endswith(f"{run_dir}/checkpoints/set_aside/001_damaged, going on from the one after 8 steps")
    assert choice.lines[1].endswith("002_damaged, going on from the one after 4 steps")
    (checkpoint_path(run_dir, 4) / name).unlink()
    last = newest_readable(run_dir)
    assert last.steps is None
    assert last.lines[0].endswith("going on from the initial checkpoint")


def test_line_names_the_first_files(run_dir: Path) -> None:
    damage = DamagedCheckpoint(checkpoint_path(run_dir, 12), [f"__{rank}_0.distcp" for rank in range(250_000)])
    line = set_aside_damaged(run_dir, 12, damage)
    assert "(__0_0.distcp, " in line
    assert "__7_0.distcp and 249992 more)" in line


def test_one_that_was_asked_for_must_be_there_and_readable(run_dir: Path) -> None:
    with pytest.raises(InputError, match=r"checkpoints: no checkpoint of 5 steps; there are: 4, 8, 12"):
        choose_checkpoint(run_dir, 5, "job 1")
    (checkpoint_path(run_dir, 8) / "progress.json").unlink()
    with pytest.raises(DamagedCheckpoint, match=r"step_00000008: progress\.json damaged or missing"):
        choose_checkpoint(run_dir, 8, None)
    assert whole_checkpoints(run_dir) == [4, 8, 12]


def test_going_back_is_done_once_in_a_launch(run_dir: Path) -> None:
    go_back(run_dir, 8, "job 1")
    assert whole_checkpoints(run_dir) == [4, 8]
    assert [path.name for path in (run_dir / "checkpoints" / "set_aside").iterdir()] == ["001_back_to_8"]
    publish(run_dir, 12)
    assert choose_checkpoint(run_dir, 8, "job 1").steps == 12  # a restart, or a requeued job
    assert choose_checkpoint(run_dir, 4, "job 1").steps == 4
    for launch in ("job 2", None):  # somebody asks again
        choice = choose_checkpoint(run_dir, 8, launch)
        assert (choice.steps, choice.asked_for) == (8, True)
    (run_dir / "checkpoints" / "resumed_from.json").write_text("{")
    assert choose_checkpoint(run_dir, 8, "job 1").steps == 8
