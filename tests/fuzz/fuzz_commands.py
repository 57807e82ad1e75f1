"""Random cases over all commands of data_prep, checkpoint_convert and checksums.

python -m tests.fuzz.fuzz_commands [--cases 1000] [--seed 0] [--command samples] [--kind fault]

``files``: the command with options of which some are absurd, over files of which some are damaged or none at all, some
on a server whose answers fail, now and then without the right to one of them. ``fault``: good options and files, and a
system call that fails, a file that changes, a clock that jumps or a kill meanwhile; then the command again. Wrong is: a
traceback, more than a line for an error or one that names nothing, more than a minute, 10 s of a processor or 1 GiB of
memory, a file of the user's that changed or is gone, something published other than what the command makes of undamaged
files. A wrong case is told with what repeats it; exit status 1 if there is one.
"""

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests import forked
from tests.forked import run_forked
from tests.foundation.network.faulty_server import FaultyServer
from tests.fuzz.case_verdicts import verdict
from tests.fuzz.failing_calls import preload
from tests.fuzz.fuzz_case import Case
from tests.fuzz.fuzzed_commands import COMMANDS, FuzzedCommand
from tests.fuzz.user_files import ServedFiles
from tests.support import REPOSITORY

TOOLS = ("checkpoint_convert", "checksums", "data_prep")


@dataclass(frozen=True)
class Found:
    """How a case ended."""

    command: str
    status: int | None
    problem: str | None


def commands_of(name: str | None) -> list[FuzzedCommand]:
    """All, or those in whose tool and name the pattern ``name`` is found."""
    return [command for command in COMMANDS if name is None or re.search(name, f"{command.tool} {command.name}")]


def try_case(
    seed: int, sources: Path, folder: Path, served: ServedFiles, *, kind: str, name: str | None = None
) -> Found:
    """One case in an empty ``folder``; everything about it follows from the seed."""
    draw = random.Random(seed)
    commands = [command for command in commands_of(name) if kind == "files" or command.has_files]
    command = draw.choice(commands)
    case = Case(seed, folder, sources, command, served, hostile=kind == "files")
    status, problem = verdict(case)
    return Found(f"{kind} {command.tool} {command.name}", status, problem)


def _prepare(arguments: list[str]) -> None:
    from tests.fuzz.prepared_files import prepare  # takes seconds, once

    prepare(Path(arguments[0]))


def _remove(folder: Path) -> None:
    """Also what nobody has rights to."""
    for inner, _, _ in os.walk(folder):
        for path in Path(inner).iterdir():
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", help="only those in whose tool and name this pattern is found")
    parser.add_argument("--kind", choices=("files", "fault"), help="only these")
    chosen = parser.parse_args()
    ends: Counter[tuple[str, int | None]] = Counter()
    broken = 0
    forked.PRELOADED = (*(one for one in forked.PRELOADED if one.startswith(TOOLS)), "torch")
    with tempfile.TemporaryDirectory() as place, FaultyServer(Path(place)) as server:
        Path(place).chmod(0o755)  # for whoever the commands are run by
        served = ServedFiles(server)
        preload(Path(place))
        sources = Path(place, "sources")
        prepared = run_forked(_prepare, [str(sources)], folder=REPOSITORY, timeout=300)
        assert prepared.returncode == 0, prepared.stderr
        started = time.monotonic()
        for seed in range(chosen.seed, chosen.seed + chosen.cases):
            folder = Path(place, "case")  # the same for all: paths may be in what is written
            folder.mkdir()
            kind = chosen.kind or ("files", "fault")[seed % 2]
            try:
                found = try_case(seed, sources, folder, served, kind=kind, name=chosen.command)
            except Exception as error:
                found = Found("this script", None, f"{type(error).__name__}: {error}")
            _remove(folder)
            if seed % 100 == 99:
                print(f"… {seed - chosen.seed + 1:,} cases", file=sys.stderr, flush=True)
            ends[found.command, found.status] += 1
            if found.problem is not None:
                broken += 1
                print(f"case {seed}: {found.problem}".encode(errors="backslashreplace").decode(), flush=True)
    for (command, status), count in sorted(ends.items(), key=str):
        print(f"{count:6,} {command}: exit status {status}")
    print(f"{chosen.cases:,} cases, {broken} broken, {time.monotonic() - started:,.0f} s")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
