"""How a case's command is run besides its words: by whom, with which rights to which files, in which locale."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.forked import LOOK_EVERY_S, run_module
from tests.fuzz.case_limits import LONGEST_S, limit_memory
from tests.support import REPOSITORY

NOBODY = 65534
POSIX = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(REPOSITORY)}


@dataclass(frozen=True)
class Circumstances:
    """The defaults are the usual ones."""

    umask: int = 0o022
    as_nobody: bool = False
    """For the administrator, who may write anywhere: give that up."""
    closed: Path | None = None
    """A folder or file whose rights are taken away."""
    rights: int = 0o777
    """That it has left."""
    posix_locale: bool = False

    def apply(self, folder: Path) -> None:
        """Before the command; ``folder`` is the case's."""
        if self.as_nobody:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        if self.closed is not None and self.closed.exists():
            self.closed.chmod(self.rights)

    def undo(self) -> None:
        if self.closed is not None and self.closed.exists():
            self.closed.chmod(0o755)

    def words(self) -> list[str]:
        """What :func:`run_module_as` takes before the command's."""
        return [str(self.umask), str(NOBODY if self.as_nobody else 0)]


def circumstances_at_random(draw: random.Random, places: list[Path]) -> Circumstances:
    """Mostly the usual ones; ``places``: what may be closed."""
    kind = draw.random()
    if kind < 0.02:
        return Circumstances(posix_locale=True)
    as_nobody = os.geteuid() == 0
    if kind < 0.05:
        return Circumstances(umask=draw.choice([0o777, 0o377, 0o277, 0o077]), as_nobody=as_nobody)
    if kind < 0.10:
        rights = draw.choice([0o555, 0o444, 0o333, 0o111, 0])
        return Circumstances(as_nobody=as_nobody, closed=draw.choice(places), rights=rights)
    return Circumstances()


def run_module_as(arguments: list[str]) -> None:
    """``python -m`` of the words after the first two, which are a umask and a user's number (0: as it is)."""
    umask, user, *words = arguments
    limit_memory()
    if int(user):
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    os.umask(int(umask))
    run_module(words)


def run_in_posix_locale(
    words: list[str], folder: Path, look: Callable[[int], None]
) -> "subprocess.CompletedProcess[str]":
    """In an interpreter of its own, for the locale holds from its start. Raises subprocess.TimeoutExpired, and what
    ``look`` raises (see :func:`tests.forked.run_forked`)."""
    command = [sys.executable, "-m", *words]
    started = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **POSIX},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
    ) as process:
        try:
            while True:
                try:
                    out, errors = process.communicate(timeout=LOOK_EVERY_S)
                    return subprocess.CompletedProcess(command, process.returncode, out, errors)
                except subprocess.TimeoutExpired:
                    look(process.pid)
                    if time.monotonic() - started > LONGEST_S:
                        raise
        finally:
            process.kill()
