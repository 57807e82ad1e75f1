"""A process killed while it replaces an output, at any of its renames: the next leaves no folder but the output."""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stage.outputs.manifest import Recipe
from stage.outputs.resumable_output import NewPiece, resumable_output

FORK = multiprocessing.get_context("fork")
CHANGES = ((Path, "rename"), (os, "replace"), (shutil, "rmtree"))


def make(output: Path, text: str, before_publishing: Callable[[], None] = lambda: None) -> None:
    with resumable_output(output, Recipe("write", {"text": text}, []), force=True) as work:
        assert work is not None
        piece = work.new_path()
        piece.write_text(text)
        work.add([NewPiece("piece", piece, "")])
        before_publishing()
        work.publish({output: (work.folder / "pieces", None)}, [], {})


def killed_at(change: int, output: Path, text: str) -> int | None:
    """Replace ``output`` in a process that kills itself before its change number ``change``; return its exit status."""

    def count() -> None:
        left = change

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)

            return call

        for owner, name in CHANGES:
            setattr(owner, name, counted(getattr(owner, name)))

    child = FORK.Process(target=make, args=(output, text, count))
    child.start()
    child.join()
    return child.exitcode


def test_a_kill_at_any_rename_leaves_no_folder_behind(tmp_path: Path) -> None:
    output = tmp_path / "out"
    make(output, "old")
    change = 0
    while killed_at(change, output, "new") != 0:
        make(output, "new")
        assert (output / "piece").read_text() == "new"
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == [output], change
        make(output, "old")
        change += 1
    assert change > 5
