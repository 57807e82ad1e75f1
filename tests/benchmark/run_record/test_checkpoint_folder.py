"""Where checkpoints lie, which of them stay, and the progress in them."""

import errno
from pathlib import Path

import pytest

from benchmark.run_record.checkpoint_folder import (
    progress_as_json,
    publish_checkpoint,
    read_progress,
    remove_retired,
    retire_old_checkpoints,
    retire_partial,
    set_aside,
)
from benchmark.run_record.checkpoint_list import newest_checkpoint, whole_checkpoints
from benchmark.run_record.file_names import checkpoint_path
from benchmark.run_record.run_progress import Evaluation, Progress
from foundation.errors import InputError
from foundation.file_formats.md5_list import read_list
from foundation.outputs.digest import md5_file

PROGRESS = Progress(
    seed=7,
    start_samples=48_000,
    global_batch_size=12,
    seq_length=16,
    steps=8,
    skipped_steps=1,
    mlperf_log_bytes=1234,
    evaluations=[Evaluation(768, 4.75)],
)


def publish(run_dir: Path, steps: int, shard: bytes = b"weights") -> Path:
    """A checkpoint as the writer leaves it to be published, then published."""
    final = checkpoint_path(run_dir, steps)
    partial = final.with_name(f"{final.name}.partial")
    partial.mkdir(parents=True)
    (partial / "__0_0.distcp").write_bytes(shard)
    (partial / ".metadata").write_bytes(b"index")
    publish_checkpoint(partial, final, {"__0_0.distcp": md5_file(partial / "__0_0.distcp")}, progress_as_json(PROGRESS))
    return final


def test_whole_checkpoints_are_those_with_a_final_name(tmp_path: Path) -> None:
    assert whole_checkpoints(tmp_path) == []
    assert newest_checkpoint(tmp_path) is None
    for steps in (12, 4, 100_000_000):
        checkpoint_path(tmp_path, steps).mkdir(parents=True)
    for name in ("step_00000016.partial", "step_x", "other"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert checkpoint_path(tmp_path, 4) == tmp_path / "checkpoints" / "step_00000004"
    assert whole_checkpoints(tmp_path) == [4, 12, 100_000_000]
    assert newest_checkpoint(tmp_path) == 100_000_000


def test_published_checkpoint_lists_all_its_files_and_replaces_the_one_before(tmp_path: Path) -> None:
    (publish(tmp_path, 8) / "__1_0.distcp").touch()
    folder = publish(tmp_path, 8, b"other weights")
    assert (folder / "__0_0.distcp").read_bytes() == b"other weights"
    remove_retired(tmp_path).join()
    assert [path.name for path in folder.parent.iterdir()] == ["step_00000008"]
    listed = read_list(folder / "digests.md5")
    assert listed == {name: md5_file(folder / name) for name in ("__0_0.distcp", ".metadata", "progress.json")}
    assert {path.name for path in folder.iterdir()} == {*listed, "digests.md5"}
    assert read_progress(folder) == PROGRESS


@pytest.mark.parametrize("damage", ["changed", "not listed", "of another version"])
def test_damaged_progress_is_refused(damage: str, tmp_path: Path) -> None:
    folder = publish(tmp_path, 8)
    path, sums = folder / "progress.json", folder / "digests.md5"
    before = md5_file(path)
    if damage == "changed":
        path.write_text(path.read_text().replace('"seed": 7', '"seed": 8'))
    elif damage == "not listed":
        sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "progress" not in line))
    else:
        path.write_text(path.read_text().replace('"seed"', '"sown"'))
        sums.write_text(sums.read_text().replace(before, md5_file(path)))
    with pytest.raises(InputError, match=r"step_00000008: progress\.json damaged or missing; use another"):
        read_progress(folder)


@pytest.mark.parametrize("reader", ["read_bounded", "read_list"])
def test_error_of_the_disk_is_no_damage(reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = publish(tmp_path, 8)

    def fail(*arguments: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(folder))

    monkeypatch.setattr(f"benchmark.run_record.checkpoint_folder.{reader}", fail)
    with pytest.raises(OSError, match="Input/output error"):
        read_progress(folder)


@pytest.mark.parametrize(
    ("keep", "keep_every", "left"),
    [(2, 0, [10, 12]), (1, 5, [5, 10, 12]), (3, 4, [4, 8, 10, 12]), (9, 0, [2, 4, 5, 8, 10, 12])],
)
def test_newest_and_every_so_many_stay(keep: int, keep_every: int, left: list[int], tmp_path: Path) -> None:
    for steps in (2, 4, 5, 8, 10, 12):
        checkpoint_path(tmp_path, steps).mkdir(parents=True)
    retire_old_checkpoints(tmp_path, keep=keep, keep_every=keep_every)
    assert whole_checkpoints(tmp_path) == left


def test_what_is_too_old_or_half_written_loses_its_name_at_once_and_its_files_later(tmp_path: Path) -> None:
    for steps in (4, 8):
        publish(tmp_path, steps)
    folder = tmp_path / "checkpoints"
    for _ in range(2):  # as after two killed attempts, the first of which is not removed yet
        (folder / "step_00000012.partial").mkdir()
        retire_partial(tmp_path)
    retire_old_checkpoints(tmp_path, keep=1, keep_every=0)
    assert sorted(path.name for path in folder.iterdir()) == [
        "step_00000004.0.retired",
        "step_00000008",
        "step_00000012.partial.0.retired",
        "step_00000012.partial.1.retired",
    ]
    assert newest_checkpoint(tmp_path) == 8
    remove_retired(tmp_path).join()
    assert [path.name for path in folder.iterdir()] == ["step_00000008"]
    retire_partial(tmp_path / "no run yet")


def test_what_a_run_goes_back_from_is_moved_and_never_lost(tmp_path: Path) -> None:
    for steps in (4, 8, 12):
        publish(tmp_path, steps, b"%d" % steps)
    aside = tmp_path / "checkpoints" / "set_aside"
    assert set_aside(tmp_path, [8, 12], why="Loss spike at step 9/12") == aside / "001_loss_spike_at_step_9_12"
    assert whole_checkpoints(tmp_path) == [4]
    publish(tmp_path, 8, b"again")
    assert set_aside(tmp_path, [], why="?") is None
    set_aside(tmp_path, [8], why="damaged")
    assert newest_checkpoint(tmp_path) == 4
    shards = {path.relative_to(aside).as_posix(): path.read_bytes() for path in aside.rglob("*.distcp")}
    assert shards == {
        "001_loss_spike_at_step_9_12/step_00000008/__0_0.distcp": b"8",
        "001_loss_spike_at_step_9_12/step_00000012/__0_0.distcp": b"12",
        "002_damaged/step_00000008/__0_0.distcp": b"again",
    }
    assert all(read_progress(folder.parent) == PROGRESS for folder in aside.rglob("progress.json"))
