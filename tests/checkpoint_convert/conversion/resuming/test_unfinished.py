"""OUTPUT.partial: ours or not, of this purpose or another, filled by one process or by several."""

import shutil
from pathlib import Path

import pytest

import stage.lock
from checkpoint_convert.conversion.resuming import unfinished as module
from checkpoint_convert.conversion.resuming.journal import WrittenFile
from checkpoint_convert.conversion.resuming.source_files import state_of
from checkpoint_convert.conversion.resuming.unfinished import UnfinishedConversion, unfinished
from stage.errors import InputError
from stage.task_shard import TaskShard

PURPOSE = {"stage": "x"}


def write(work: UnfinishedConversion, name: str) -> None:
    path = work.files / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(name)
    work.journal.note(name, WrittenFile("0" * 32, state_of(path.stat())))


def test_it_stays_where_something_was_written_and_goes_otherwise(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(RuntimeError), unfinished(output, PURPOSE, None):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with unfinished(output, PURPOSE, TaskShard(0, 2)) as work:
        write(work, "a/0")
    with pytest.raises(RuntimeError), unfinished(output, PURPOSE, TaskShard(1, 2)) as work:
        assert work.journal.has("a/0")
        raise RuntimeError
    with unfinished(output, PURPOSE, None) as work:
        assert work.journal.resumed == 1
    with unfinished(output, {"stage": "y"}, None) as work:
        assert work.journal.resumed == 0
        assert list(work.files.iterdir()) == []


def test_a_folder_that_goes_while_one_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has published it, or removed it."""
    opened = module._opened

    def opened_and_gone(*given: object) -> Path:
        folder = opened(*given)  # type: ignore[arg-type]
        shutil.rmtree(folder)
        return folder

    monkeypatch.setattr(module, "_opened", opened_and_gone)
    with pytest.raises(InputError, match="run the command again"), unfinished(tmp_path / "out", PURPOSE, None):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out.partial"
    for make in (folder.mkdir, folder.touch):
        make()
        with pytest.raises(InputError, match="not made by this command"), unfinished(tmp_path / "out", PURPOSE, None):
            pass
        assert folder.exists()
        folder.rmdir() if folder.is_dir() else folder.unlink()


def test_whole_and_shards_exclude_each_other_and_shards_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 0.2)
    output, first, second = tmp_path / "out", TaskShard(0, 2), TaskShard(1, 2)
    with unfinished(output, PURPOSE, first) as one, unfinished(output, PURPOSE, second) as other:
        write(one, "a/0")
        write(other, "a/1")
        for shard, purpose in ((None, PURPOSE), (first, PURPOSE), (None, {"stage": "y"})):
            with (
                pytest.raises(InputError, match="another conversion is writing it"),
                unfinished(output, purpose, shard),
            ):
                pass
    with unfinished(output, PURPOSE, None) as work:
        assert work.journal.resumed == 2
        with pytest.raises(InputError, match="another conversion"), unfinished(output, PURPOSE, first):
            pass
