"""Conversions in which a system call fails, the process is killed or the source changes at a moment chosen at random.

python -m tests.checkpoint_convert.faults [--cases 500] [--seed 0]

After each: the command ended with 0 or with one line and 2; what is published is whole and right; the source, and what
lies beside the output, is as it was. Then the command is run again without a fault and gives the same bytes.
"""

import argparse
import errno
import fcntl
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checksums.md5_list import digest_folder, read_list
from tests.forked import run_forked, run_module
from tests.support import REPOSITORY

SIZES = ModelSizes(layers=2, hidden=6, heads=2, vocab=10, positions=5)
CALLS = {
    "open": os,
    "write": os,
    "fsync": os,
    "replace": os,
    "close": os,
    "scandir": os,
    "fstat": os,
    "flock": fcntl,
    "rename": Path,
    "mkdir": Path,
    "unlink": Path,
    "stat": Path,
}
ERRORS = ("ENOSPC", "EIO", "ENOSYS", "EINVAL", "EDQUOT", "EMFILE", "EACCES")
CHANGES = ("vanish", "rewrite", "truncate")
MOST_CALLS = {"open": 900, "write": 600, "fsync": 450, "replace": 300, "close": 900, "stat": 1500}
ENDINGS = ("common.pt",)
"""PyTorch writes other bytes each time."""


@dataclass(frozen=True)
class Fault:
    """What happens at the call number ``number``."""

    call: str
    number: int
    what: str
    """The name of an error, ``kill``, or what becomes of a file of the source."""
    shard: str | None
    force: bool


def fault_at_random(chance: random.Random) -> Fault:
    call = chance.choice(list(CALLS))
    what = chance.choice([*ERRORS, *ERRORS, "kill", "kill", *CHANGES])
    shard = chance.choice([None, None, "0/2", "1/2"])
    return Fault(call, chance.randrange(1, MOST_CALLS.get(call, 60)), what, shard, chance.random() < 0.2)


def run_with_fault(arguments: list[str]) -> None:
    """The command in whose process the fault happens; the first three words say which."""
    call, number, what, source, *words = arguments
    place: Any = CALLS[call]
    real: Callable[..., Any] = getattr(place, call)
    calls = [0]

    def faulty(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == int(number):
            if what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif what in CHANGES:
                damage(Path(source), what, int(number))
            else:
                code = getattr(errno, what)
                raise OSError(code, os.strerror(code))
        return real(*given, **named)

    setattr(place, call, faulty)
    run_module(words)


def damage(source: Path, what: str, seed: int) -> None:
    """One of the source's chunks, while it is converted; by a process of its own, whose calls do not fail."""
    chunks = sorted(path for path in source.rglob("*") if path.name[0].isdigit())
    script = {"vanish": 'rm "$0"', "rewrite": 'printf x > "$0"', "truncate": ': > "$0"'}[what]
    subprocess.run(["sh", "-c", script, str(chunks[seed % len(chunks)])], check=True)


class Cases:
    """All in one folder, from one small checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.original = folder / "original"
        write_random_paxml(self.original, seed=1, sizes=SIZES)
        self.expected: dict[str, str] | None = None
        self.expected = self._converted(folder / "expected", self.original)

    def _words(self, source: Path, output: Path, fault: Fault | None = None) -> list[str]:
        words = ["checkpoint_convert", "paxml-to-megatron", "--input", str(source), "--output", str(output)]
        words += ["--dtype", "bf16", "--workers", "2", "--memory-limit", "1GiB"]
        words += ["--shard", fault.shard] if fault is not None and fault.shard else []
        return words + (["--force"] if fault is not None and fault.force else [])

    def _converted(self, output: Path, source: Path) -> dict[str, str]:
        done = run_forked(run_module, self._words(source, output), folder=REPOSITORY, timeout=120)
        assert done.returncode == 0, done.stderr
        return self._found(output)

    def _found(self, output: Path) -> dict[str, str]:
        """What is published: whole, and as its list says."""
        found = digest_folder(output)
        assert found == read_list(output.with_name(output.name + ".md5"))
        found = {name: "" if name.endswith(ENDINGS) else md5 for name, md5 in found.items()}
        assert self.expected in (None, found), "other bytes than without a fault"
        return found

    def run(self, fault: Fault) -> str:
        """Try one; gives what came of it. Raises AssertionError where something is wrong."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        source, output = place / "source", place / "out"
        shutil.copytree(self.original, source)
        (place / "bystander").write_text("mine")
        before = digest_folder(source)
        words = [fault.call, str(fault.number), fault.what, str(source), *self._words(source, output, fault)]
        done = run_forked(run_with_fault, words, folder=REPOSITORY, timeout=120)
        self._check(fault, done, output)
        assert (place / "bystander").read_text() == "mine"
        if fault.what in CHANGES:
            shutil.rmtree(source)
            shutil.copytree(self.original, source)
        assert digest_folder(source) == before
        self._converted(output, source)
        assert sorted(path.name for path in place.iterdir()) == [
            "bystander",
            "out",
            "out.manifest.json",
            "out.md5",
            "source",
        ]
        shutil.rmtree(place)
        return f"{done.returncode}"

    def _check(self, fault: Fault, done: "subprocess.CompletedProcess[str]", output: Path) -> None:
        assert "Traceback" not in done.stderr, done.stderr
        if fault.what == "kill":
            assert done.returncode in (0, -signal.SIGKILL), done.stderr
        else:
            assert done.returncode in (0, 2), done.stderr
            errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
            assert len(errors) == (done.returncode != 0), done.stderr
        if done.returncode == 0 and fault.shard is None:
            assert output.is_dir()
        if output.with_name("out.manifest.json").exists():
            self._found(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    chance, wrong = random.Random(chosen.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        cases = Cases(Path(folder))
        for number in range(chosen.cases):
            fault = fault_at_random(chance)
            try:
                came = cases.run(fault)
            except Exception as error:
                wrong += 1
                came = f"WRONG {str(error)[-2000:]}"
            print(f"{number:>5} {fault} -> {came}", flush=True)
    print(f"{chosen.cases} cases, {wrong} wrong")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
