"""The resumable output: whatever happens at whatever moment, an output is whole and of one recipe, or not there.

The job of these tests copies the letters of an input into pieces of one letter each.
"""

import errno
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import InputError
from foundation.outputs import resumable_output
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import Recipe, read_manifest, source_of
from foundation.outputs.output_parts import NewPart, new_name
from foundation.outputs.resumable_output import ResumableOutput
from foundation.outputs.resumable_output import resumable_output as begin
from foundation.outputs.shards import parse_shard

LETTERS = "abcdefgh"
FORK = multiprocessing.get_context("fork")
Moment = Callable[[str], None]


class Job:
    """Copies ``in`` to ``out``; ``at`` is told each moment, and may raise or kill."""

    def __init__(self, folder: Path, text: str = LETTERS) -> None:
        self.input, self.output = folder / "in", folder / "out"
        self.input.write_text(text)

    def recipe(self, **options: Any) -> Recipe:
        return Recipe("copy", options, [source_of(self.input)])

    def run(
        self, shard: str | None = None, *, force: bool = False, at: Moment = lambda moment: None, **options: Any
    ) -> int | None:
        """Return how many pieces it made; None where the output was there."""
        share, recipe, text = parse_shard(shard) if shard else None, self.recipe(**options), self.input.read_text()
        with begin(self.output, recipe, inputs=[self.input], shard=share, force=force) as work:
            if work is None:
                return None
            names = [f"{number % 2}/{number}" for number in range(len(text))]
            todo = work.missing(names if share is None else share.of(names))
            for name in todo:
                self._make(work, name, text, at)
            if share is None:
                at("publish")
                work.publish(
                    {self.output: (work.folder / "pieces", None)}, [source_of(self.input)], {"made": len(todo)}
                )
            return len(todo)

    def _make(self, work: ResumableOutput, name: str, text: str, at: Moment) -> None:
        at(f"write {name}")
        path = work.new_path()
        path.write_text(text[int(name[2:])])
        at(f"add {name}")
        work.add([NewPart(name, path, md5_file(path), {"letter": path.read_text()})])

    def result(self) -> str:
        """Return the text that the output's files hold."""
        files = sorted(self.output.rglob("*"), key=lambda path: path.name)
        return "".join(path.read_text() for path in files if path.is_file())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def names(job: Job) -> list[str]:
    return sorted(path.name for path in job.output.parent.iterdir())


WHOLE = ["in", "out", "out.manifest.json"]


def test_it_is_made_once_and_leaves_nothing_else(job: Job) -> None:
    assert job.run() == len(LETTERS)
    assert (job.result(), names(job)) == (LETTERS, WHOLE)
    manifest = read_manifest(job.output)
    assert manifest is not None
    assert (manifest.facts, manifest.outputs[0].files) == ({"made": 8}, 8)
    assert job.run() is None


def test_shards_publish_nothing_and_the_join_makes_only_what_is_left(job: Job) -> None:
    count = 3
    for index in range(1, count):
        assert job.run(f"{index}/{count}") == len(range(index, 8, count))
        assert names(job) == ["in", "out.partial"]
    assert job.run(f"1/{count}") == 0
    assert job.run() == len(range(0, 8, count))
    assert (job.result(), names(job)) == (LETTERS, WHOLE)
    assert job.run(f"1/{count}") is None


@pytest.mark.parametrize("moment", ["write 0/0", "add 1/5", "publish"])
def test_a_kill_at_any_moment_costs_one_piece(moment: str, job: Job) -> None:
    def kill(now: str) -> None:
        if now == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    child = FORK.Process(target=job.run, kwargs={"at": kill})
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert "out" not in names(job)
    made = job.run()
    assert made == (0 if moment == "publish" else 8 - int(moment[-1]))
    assert (job.result(), names(job)) == (LETTERS, WHOLE)


def test_three_kills_leave_no_file_that_was_being_written(job: Job) -> None:
    """Each process writes to a path of its own, which nobody finishes."""

    def kill(now: str) -> None:
        if now == "add 0/0":
            os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(3):
        child = FORK.Process(target=job.run, kwargs={"at": kill})
        child.start()
        child.join()
    writing = job.output.with_name("out.partial") / "writing"
    (killed,) = writing.iterdir()
    alive = writing / killed.name.replace(killed.name.split("-")[1], str(os.getpid()))
    recent, stale = writing / "another-machine", writing / "0123456789abcdef"
    for path in (alive, recent):
        path.write_text("")
    (stale / "below").mkdir(parents=True)
    for path in (stale / "below", stale):
        os.utime(path, (0, 0))
    assert job.run("0/2") == 4
    assert sorted(writing.iterdir()) == sorted([alive, recent])


def test_what_a_library_writes_after_an_interrupted_process_has_removed_its_folder_is_in_nobodys_way(job: Job) -> None:
    """TensorStore finishes a write that nobody waits for, and makes the folders above it again."""
    left = job.output.with_name("out.partial") / "writing" / new_name().replace(f"-{os.getpid()}-", f"-{1 << 30}-")
    (left / "array").mkdir(parents=True)
    assert job.run() == 8
    assert names(job) == WHOLE


def kill_at_rename(number: int, job: Job) -> None:
    """Replace the output in a process that kills itself before its rename number ``number`` of the publication."""
    assert killed_at(number, job) == -signal.SIGKILL


@pytest.mark.parametrize("old", [False, True])
def test_what_a_user_has_put_in_the_place_since_a_kill_is_kept(old: bool, tmp_path: Path) -> None:
    """The kill left a publication without its renames."""
    job, number = Job(tmp_path, "abc"), 0
    if old:
        job.run()
    while not (tmp_path / "out.partial" / "publish.json").exists() or job.output.exists():
        if old and not (tmp_path / "out.manifest.json").exists():
            job.run()
        kill_at_rename(number, job)
        number += 1
    job.output.mkdir()
    (job.output / "notes").write_text("mine")
    job.input.write_text("xyz")
    with pytest.raises(InputError, match=r"out.*waits for its name, after a kill; move .*out away"):
        job.run()
    assert (job.output / "notes").read_text() == "mine"
    job.output.rename(tmp_path / "moved")
    job.input.write_text("abc")
    assert job.run(case="upper") is None
    assert job.result() == "abc"


CHANGES = ((Path, "rename"), (os, "replace"), (shutil, "rmtree"))


def killed_at(change: int, job: Job) -> int | None:
    """Replace the output in a process that kills itself before its change number ``change`` once all is made; return
    its exit status."""

    def count(moment: str) -> None:
        left = change

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)

            return call

        if moment == "publish":
            for owner, name in CHANGES:
                setattr(owner, name, counted(getattr(owner, name)))

    child = FORK.Process(target=job.run, kwargs={"force": True, "at": count, "case": "upper"})
    child.start()
    child.join()
    return child.exitcode


def test_a_kill_at_any_rename_of_a_replacement_is_finished_by_the_next(tmp_path: Path) -> None:
    """The next process leaves no folder but the output."""
    job, change = Job(tmp_path, "abc"), 0
    job.run()
    while killed_at(change, job) != 0:
        job.run(force=True, case="upper")
        assert job.result() == "abc"
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == [job.output], change
        assert job.run(case="upper") is None
        job.run(force=True)
        change += 1
    assert change > 5


@pytest.mark.parametrize(("call", "number"), [("fsync", errno.EIO), ("rename", errno.ENOSPC)])
def test_a_disk_that_refuses_is_told_and_costs_one_piece(
    call: str, number: int, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.run("0/2")

    def refuse(*words: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if call == "rename":
            patch.setattr(Path, "rename", refuse)
        else:
            patch.setattr(os, call, refuse)
        with pytest.raises(OSError, match=os.strerror(number)):
            job.run("1/2")
    assert job.run() == 4
    assert (job.result(), names(job)) == (LETTERS, WHOLE)


@pytest.mark.parametrize("damage", ["lost", "shorter", "other", "set back", "touched", "torn journal"])
def test_a_piece_counts_where_disk_and_journal_agree(damage: str, job: Job) -> None:
    job.run("0/1")
    folder = job.output.with_name("out.partial")
    piece = folder / "pieces" / "0" / "2"
    if damage == "lost":
        piece.unlink()
    elif damage == "torn journal":
        (journal,) = (folder / "journal").iterdir()
        journal.write_bytes(journal.read_bytes()[:-20])
    else:
        before = piece.stat()
        piece.write_text({"shorter": "", "other": "x", "set back": "x", "touched": "c"}[damage])
        os.utime(piece, ns=(1, before.st_mtime_ns if damage == "set back" else 1))
    assert job.run() == (0 if damage == "touched" else 1)
    assert job.result() == LETTERS


def test_another_recipe_is_refused_and_touches_nothing(job: Job) -> None:
    """A typo in one task's --dtype once wiped the other tasks' work."""
    job.run("0/2", dtype="bf16")
    with pytest.raises(InputError, match="begun for another output: dtype is fp32, not bf16"):
        job.run("1/2", dtype="fp32")
    with pytest.raises(InputError, match=r"--shard 1/2 with --force"):
        job.run("1/2", dtype="fp32", force=True)
    assert job.run(dtype="bf16") == 4


def test_an_input_that_changes_between_tasks_is_never_mixed(job: Job) -> None:
    job.run("0/2")
    job.input.write_text(LETTERS.upper())
    for shard in ("1/2", None):
        with pytest.raises(InputError, match=r"the content of .*in is not that of .*in as it was"):
            job.run(shard)
    assert job.run(force=True) == 8
    assert job.result() == LETTERS.upper()


def test_an_input_that_changes_meanwhile_is_not_published(job: Job) -> None:
    def change(moment: str) -> None:
        if moment == "publish":
            job.input.write_text("ABCDEFGH")

    with pytest.raises(InputError, match="not published, for an input changed meanwhile"):
        job.run(at=change)
    assert "out" not in names(job)


def test_bad_input_leaves_no_folder(job: Job) -> None:
    def fail(moment: str) -> None:
        raise InputError("bad")

    with pytest.raises(InputError, match="bad"):
        job.run(at=fail)
    assert names(job) == ["in"]


def test_force_replaces_what_this_command_made(job: Job) -> None:
    job.run()
    with pytest.raises(InputError, match=r"out exists and was made otherwise \(dtype is fp32, not None\)"):
        job.run(dtype="fp32")
    assert job.run(dtype="fp32", force=True) == 8
    assert names(job) == WHOLE


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ("out/note", "9 files of 12 bytes instead of 8 of 8, so somebody changed it"),
        ("out/0/2", "8 files of 11 bytes instead of 8 of 8"),
        ("out.manifest.json", "JSON is malformed"),
    ],
)
def test_force_replaces_nothing_of_anybody_elses(there: str, told: str, job: Job) -> None:
    job.run()
    path = job.output.parent / there
    path.write_text("mine")
    with pytest.raises(InputError, match=told):
        job.run(dtype="fp32", force=True)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["out", "out.manifest.json", "out.partial"])
def test_files_that_were_there_are_kept(name: str, force: bool, job: Job) -> None:
    path = job.output.parent / name
    path.write_text("mine")
    with pytest.raises(InputError, match=name):
        job.run(force=force)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("output", ["in", "in/inside", ".", "link"])
def test_an_input_is_never_overwritten(output: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    recipe, place = Recipe("copy", {}, []), tmp_path if output == "." else tmp_path / output
    with (
        pytest.raises(InputError, match="choose another output"),
        begin(place, recipe, inputs=[tmp_path / "in"], force=True),
    ):
        pass
    assert (tmp_path / "in" / "a").read_text() == "a"


def test_a_process_that_publishes_just_after_another_takes_nothing_away(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lock: the other one renames the output before this one does, and then removes the folder."""
    folder, rename, renames = job.output.with_name("out.partial"), Path.rename, list[Path]()

    def after_the_other(path: Path, target: Path) -> Path:
        if path not in (folder / "pieces", job.output):
            return rename(path, target)
        renames.append(path)
        if len(renames) == 1:
            rename(folder / "pieces", job.output)
        try:
            return rename(path, target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    job.run(at=lambda moment: monkeypatch.setattr(Path, "rename", after_the_other) if moment == "publish" else None)
    assert (renames, job.result(), names(job)) == ([folder / "pieces"], LETTERS, WHOLE)


def test_a_folder_that_another_process_has_made_since_is_not_published(job: Job) -> None:
    """Though its recipe has the inode of the former one's."""
    folder, former = job.output.with_name("out.partial"), job.output.with_name("former")

    def exchange(moment: str) -> None:
        if moment == "publish":
            folder.rename(former)
            (folder / "pieces").mkdir(parents=True)
            os.link(former / "recipe.json", folder / "recipe.json")
            os.utime(folder / "recipe.json", (1, 1))

    with pytest.raises(InputError, match=r"out\.partial: gone meanwhile"):
        job.run(at=exchange)
    assert not job.output.exists()


def test_eight_at_once_publish_one_whole(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any lock, processes that do the same work waste it, and nothing more."""
    monkeypatch.setattr(resumable_output, "only_one_in", lambda *words, **options: nullcontext())
    children = [FORK.Process(target=_run_quietly, args=(job,)) for _ in range(8)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert {child.exitcode for child in children} <= {0, 2}
    assert job.run() in (None, 0)
    assert (job.result(), names(job)) == (LETTERS, WHOLE)


def _run_quietly(job: Job) -> None:
    try:
        job.run()
    except (InputError, FileNotFoundError):
        raise SystemExit(2) from None
