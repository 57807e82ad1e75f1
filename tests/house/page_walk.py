"""Walk a page: its blocks of commands run one after the other in one shell, in a folder that looks like a clone."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.forked import run_forked
from tests.house.readme_stand_in import python
from tests.support import REPOSITORY

STANDS_IN = Path(__file__).with_name("readme_stand_in.py")
ROOMS = ("benchmark", "checkpoint_convert", "data_prep", "model", "foundation", "environment.sh")


def make_checkout(checkout: Path) -> None:
    """Make what looks like a clone; the code is this repository's."""
    (checkout / "tests").mkdir(parents=True)
    for name in ROOMS:
        (checkout / name).symlink_to(REPOSITORY / name)
    shutil.copytree(REPOSITORY / "checksums", checkout / "checksums")
    for name in (".gitignore", "Dockerfile"):
        shutil.copy(REPOSITORY / name, checkout)
    someone = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    for words in (["init", "-q"], ["add", "--all"], [*someone, "commit", "-q", "-m", "the code"]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    (checkout / "tests" / "run.sh").write_text("#!/bin/sh\n")  # it is what runs this
    (checkout / "tests" / "run.sh").chmod(0o755)


def make_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def serve(folder: Path, checkout: Path) -> None:
    """Run what the walk's ``python`` is asked, each forked from a process that has imported it all."""
    while True:
        words = (folder / "asked").read_text().splitlines()  # waits for the next command
        done = run_forked(python, words, folder=checkout, timeout=120)
        with (folder / "said").open("a") as said:
            said.write(f"{' '.join(words)[:200]}\n{done.stdout}{done.stderr}")
        (folder / "status").write_text(str(done.returncode))


def walk(
    folder: Path, checkout: Path, blocks: list[str], programs: Mapping[str, str], variables: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run the blocks from ``folder``, with these programs by name before those of the machine, and ``python``."""
    asking = f'printf "%s\\n" "$@" >{folder}/asked; exit "$(cat {folder}/status)"'
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in {"python": asking, **programs}.items():
        make_program(folder / "bin" / name, text)
    for name in ("asked", "status"):
        os.mkfifo(folder / name)
    threading.Thread(target=serve, args=[folder, checkout], daemon=True).start()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MASTER"))}
    environment |= {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "REAL_PYTHON": sys.executable, **variables}
    script = "set -euo pipefail\n" + "".join(f"echo '=== block {n}' >&2\n{block}" for n, block in enumerate(blocks))
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
