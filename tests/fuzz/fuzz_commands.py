"""Random cases over all commands of data_prep, checkpoint_convert and checksums.

python -m tests.fuzz.fuzz_commands [--cases 1000] [--seed 0] [--command merge] [--kind fault]

``files``: the command with options of which some are absurd, over files of which some are damaged or none at all.
``fault``: good options and files, and a system call that fails, a file that changes or a kill meanwhile; then the
command again. Wrong is: a traceback, more than a line for an error or one that names nothing, more than SECONDS, more
memory than MEMORY_BYTES, a file of the user's that changed or is gone, something published other than what the command
makes of undamaged files. A wrong case is told with what repeats it; exit status 1 if there is one.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checksums.md5_list import digest_folder, read_list
from stage.digest import md5_file
from tests.forked import run_forked, run_module
from tests.fuzz.failing_calls import CHANGES, FailingCall, failing_call_at_random, preload, run_with_failing_call
from tests.fuzz.fuzzed_commands import COMMANDS, HOSTILE, PATHS, FuzzedCommand, prepare
from tests.fuzz.plain_pipeline import wrong_dataset
from tests.fuzz.user_files import KEEPS_SIZE, UserFiles
from tests.support import REPOSITORY

SECONDS = 60.0
MEMORY_BYTES = 1 << 30
LONGEST_ERROR = 1500
IN_POSIX_LOCALE = 0.02
DIFFERS = ("common.pt", ".manifest.json", ".md5", ".metadata")
"""Endings of files whose bytes differ every time: PyTorch's, and what holds sums or times."""
ODD_OUTPUTS = ("b c", "n\nl", "\udcfe", "back\\slash", "a" * 240)
NOT_OUTPUT = ("mine", "lock", ".owner", ".partial", ".parts")


@dataclass(frozen=True)
class Found:
    """How a case ended."""

    command: str
    status: int | None
    problem: str | None


class Case:
    """One command over one user's files, in a folder that is there for it alone."""

    def __init__(self, seed: int, folder: Path, sources: Path, command: FuzzedCommand, *, hostile: bool) -> None:
        self.draw, self.folder, self.sources, self.command = random.Random(seed), folder, sources, command
        self.hostile = hostile
        self.user = UserFiles(folder / "user", sources, self.draw)
        self.there = folder / "out"
        self.there.mkdir()
        (self.there / "mine").write_text("the user's")
        self.output: Path | None = None
        self.words = [command.tool, command.name, *self._words()]

    def _words(self) -> list[str]:
        draw, command = self.draw, self.command
        words = [word for option, pattern in command.reads.items() for word in self._reads(option, pattern)]
        for option, pattern in command.sometimes_reads.items():
            words += self._reads(option, pattern) if draw.random() < (0.3 if self.hostile else 0.1) else []
        for option, values in command.options.items():
            words += [option, self._value(values)]
        for option, values in command.sometimes.items():
            words += [option, self._value(values)] if draw.random() < (0.25 if self.hostile else 0.1) else []
        flags = [flag for flag in command.flags if self.hostile or flag != "--plan"]
        words += [flag for flag in flags if draw.random() < (0.2 if self.hostile else 0.05)]
        if command.writes is not None:
            self.output = self._output()
            words += [command.writes, str(self.output)]
        if self.hostile and draw.random() < 0.05:
            words += [draw.choice(["--no-such", "stray", "--workers", *words]), draw.choice(HOSTILE)]
        return words

    def _value(self, values: Sequence[str]) -> str:
        if not self.hostile:
            return values[0] if self.draw.random() < 0.8 else values[-1]
        pool: Sequence[str] = HOSTILE if self.draw.random() < 0.15 else values
        return self.draw.choice(pool)

    def _reads(self, option: str, pattern: str) -> list[str]:
        count = self.draw.choice([1, 1, 2, 3]) if option in self.command.several else 1
        taken = [self._one(pattern) for _ in range(count)]
        return ([option] if option.strip() else []) + taken

    def _one(self, pattern: str) -> str:
        if self.hostile and self.draw.random() < 0.05:
            return self.draw.choice(PATHS)
        return str(self.user.take(pattern, spoil=0.4 if self.hostile else 0.0, odd=self.hostile))

    def _output(self) -> Path:
        usual = self.there / self.command.output
        if not self.hostile or self.draw.random() < 0.7:
            return usual
        users = [path for _, path in self.user.taken]
        odd = [self.there / f"{name}{self.command.output}" for name in ODD_OUTPUTS]
        places: list[Path] = (
            [self._of_the_users(usual)] * 4
            + [*odd, *users, *users, self.user.path, self.folder, self.there / "mine" / "x", Path("/proc/x"), Path()]
            + [self.there / "new" / "deep" / self.command.output]
        )
        return self.draw.choice(places)

    def _of_the_users(self, path: Path) -> Path:
        """Something that the user has where the output is to be."""
        kind = self.draw.choice(["folder", "file", "loop", "dangling", "pipe"])
        if kind == "folder":
            path.mkdir()
            (path / "notes").write_text("the user's")
        elif kind == "file":
            path.write_text("the user's")
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(path.name if kind == "loop" else "nowhere")
        return path

    def state(self) -> dict[str, str]:
        """Of all that is the user's."""
        mine = self.user.state()
        beside = UserFiles.__new__(UserFiles)
        beside.path = self.there
        return {**mine, **beside.state()}

    def published(self) -> dict[str, str]:
        """MD5 of the files under the output's name, with what differs anyhow left empty. Raises AssertionError where a
        folder is not as the list beside it says."""
        if self.output is None or not self.output.is_relative_to(self.there):
            return {}
        found = {}
        for path in sorted(self.there.iterdir()):
            if not path.name.startswith(self.output.name) or _is_no_output(path):
                continue
            if path.is_dir():
                sums = path.with_name(path.name + ".md5")
                digests = {name: md5 for name, md5 in digest_folder(path).items() if not name.endswith(NOT_OUTPUT)}
                if sums.is_file() and path.with_name(path.name + ".manifest.json").is_file():
                    assert read_list(sums) == digests, f"{path} is not as its list says"
                found.update({f"{path.name}/{name}": md5 for name, md5 in digests.items()})
            elif path.is_file():
                found[path.name] = md5_file(path)
        return {name: "" if name.endswith(DIFFERS) else md5 for name, md5 in found.items()}

    def begin_anew(self) -> None:
        """Good copies of all that was taken, and no output: the same paths, for they may be in what is written."""
        for path in (self.user.path, self.there):
            shutil.rmtree(path)
            path.mkdir()
        (self.there / "mine").write_text("the user's")
        for source, copy in self.user.taken:
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy)
            else:
                shutil.copy2(source, copy)

    def run(self, fault: FailingCall | None = None, counts: str = "") -> "subprocess.CompletedProcess[str]":
        if fault is None and not counts:
            if self.hostile and self.draw.random() < IN_POSIX_LOCALE:
                return self._run_in_posix_locale()
            return run_forked(_limited, self.words, folder=self.folder, timeout=SECONDS)
        failing = ["open", "0", "EIO", ""] if fault is None else fault.words()
        words = [str(self.folder), counts, *failing, *self.words]
        return run_forked(run_with_failing_call, words, folder=self.folder, timeout=SECONDS)

    def _run_in_posix_locale(self) -> "subprocess.CompletedProcess[str]":
        """In an interpreter of its own, for the locale holds from its start."""
        locale = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(REPOSITORY)}
        words = [sys.executable, "-m", *self.words]
        return subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, **locale},
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=SECONDS,
            check=False,
        )


def _limited(arguments: list[str]) -> None:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    used = int(status["VmData"].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    run_module(arguments)


def try_files(case: Case) -> "tuple[int | None, str | None]":
    """Status and problem of a case of odd options and damaged files."""
    before = case.state()
    try:
        done = case.run()
    except subprocess.TimeoutExpired:
        return None, f"took more than {SECONDS:g} s\n  {case.words}"
    problem = problem_with(case, done, before)
    if problem is None and (done.returncode == 0 or case.output is not None):
        problem = wrongly_published(case, done)
    told = f"\n  {case.words}\n  damaged {case.user.damaged}\n  {done.stderr[-900:]}"
    return done.returncode, problem and problem + told


def problem_with(case: Case, done: "subprocess.CompletedProcess[str]", before: dict[str, str]) -> str | None:
    after = case.state()
    lost = [path for path, state in before.items() if after.get(path) != state]
    if lost:
        return f"the user's {lost[0]} is not what it was"
    if done.returncode not in (0, 1, 2):
        return f"exit status {done.returncode}"
    if "Traceback" in done.stderr + done.stdout:
        return "a traceback"
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    if done.returncode == 2 and (len(errors) != 1 or not done.stderr.splitlines()[-1].startswith("error: ")):
        return "an error that is not one line"
    if errors and len(errors[0]) > LONGEST_ERROR:
        return f"an error of {len(errors[0])} characters"
    shown = (word.encode(errors="surrogateescape").decode(errors="backslashreplace") for word in case.words)
    named = [*"/='", "--", "worker", ".: ", *(" ".join(word.split()) for word in shown if word.strip())]
    if errors and not any(word in errors[0] for word in named):
        return "an error that names no option and no file"
    return None


def wrongly_published(case: Case, done: "subprocess.CompletedProcess[str]") -> str | None:
    """Compare with what the command makes of good files, where damage could have been seen."""
    try:
        found = case.published()
    except AssertionError as error:
        return str(error)
    if done.returncode or not found:
        return None
    if case.command.name == "preprocess":
        return preprocess_differs(case)
    values_only = any(kind in KEEPS_SIZE or _is_text(path) for path, kind in case.user.damaged)
    if not case.user.damaged or values_only or case.command.tool == "checksums":
        return None
    case.begin_anew()
    good = case.run()
    if good.returncode == 0 and case.published() != found:
        return "published something else than of undamaged files"
    return None


def _is_no_output(path: Path) -> bool:
    """What is written on the way, and what is no file."""
    return path.name.endswith(NOT_OUTPUT) or path.is_symlink()


def _cut_index(fault: FailingCall, done: "subprocess.CompletedProcess[str]") -> bool:
    """The index of a dataset, which is memory-mapped, was cut while it was read: of that the kernel has the word."""
    return fault.victim.suffix == ".idx" and done.returncode == -signal.SIGBUS and "Bus error" in done.stderr


def _is_text(path: Path) -> bool:
    """Whether less or more of it is as good as before."""
    return path.name.endswith((".json", ".gz", ".zst", ".txt", ".hashes")) and not path.name.endswith("blend.json")


def preprocess_differs(case: Case) -> str | None:
    """How a dataset differs from what a plain pipeline makes of the same files."""
    output = case.output
    if output is None or not output.with_name(output.name + ".manifest.json").exists():
        return None
    options = case.words
    if any(option in options for option in ("--shard", "--text-key", "--filter")) or len(options) != len(set(options)):
        return None
    inputs = options[options.index("--input") + 1 : options.index("--tokenizer")]
    model = Path(options[options.index("--tokenizer") + 1])
    try:
        return wrong_dataset(
            output,
            [Path(path) for path in inputs],
            model,
            skip="skip" in options,
            append_eod="--append-eod" in options,
        )
    except Exception as error:  # the plain pipeline, too, found a file damaged
        return f"published, though a plain pipeline fails: {type(error).__name__}: {error}"


def try_fault(case: Case) -> "tuple[int | None, str | None]":
    """Status and problem of a case with a fault."""
    counts = _counts(case)
    if isinstance(counts, str):
        return None, counts
    expected, seen, usual = counts
    victims = sorted(path for path in case.user.path.rglob("*") if path.is_file()) or [case.there / "mine"]
    fault = failing_call_at_random(case.draw, seen, victims)
    if fault.what in CHANGES:
        shutil.copytree(case.user.path, case.folder / "kept")
    before = case.state()
    if fault.what in CHANGES:
        before.pop(str(fault.victim))
    told = f"\n  {fault}\n  {case.words}"
    try:
        done = case.run(fault)
    except subprocess.TimeoutExpired:
        return None, f"took more than {SECONDS:g} s{told}"
    told += f"\n  {done.stderr[-900:]}"
    killed = fault.what == "kill" and done.returncode == -signal.SIGKILL
    killed = killed or _cut_index(fault, done)
    problem = None if killed else problem_with(case, done, before)
    if problem is None and done.returncode == 1 and usual != 1 and fault.what not in CHANGES:
        problem = "a check failed, where a system call did"
    problem = problem or _after_fault(case, fault, done.returncode, expected)
    return done.returncode, problem and problem + told


Faultless = tuple[dict[str, str], dict[str, int], int]
"""What a command publishes without a fault, its calls of each kind, and its status."""
FAULTLESS: dict[str, Faultless] = {}
"""By the command's words."""


def _counts(case: Case) -> Faultless | str:
    """See FAULTLESS; a text where the command fails, with no fault at all."""
    key = json.dumps(case.words)
    if key not in FAULTLESS:
        counts = case.folder / "counts"
        good = case.run(counts=str(counts))
        if good.returncode not in (0, 1) or not counts.exists():
            return f"status {good.returncode} without a fault\n  {case.words}\n  {good.stderr[-900:]}"
        FAULTLESS[key] = case.published(), json.loads(counts.read_text()), good.returncode
        case.begin_anew()
    return FAULTLESS[key]


def _after_fault(case: Case, fault: FailingCall, status: int, expected: dict[str, str]) -> str | None:
    """What is there is right, and the same command, without a fault, ends well."""
    changes_input = fault.what in CHANGES
    try:
        found = case.published()
        partly = {name: md5 for name, md5 in found.items() if expected.get(name) != md5}
        if partly and not (changes_input and status == 0):
            return f"published {sorted(partly)[:3]}, which is not what it should be"
        if status == 0 and not changes_input and found.keys() != expected.keys():
            return f"status 0, and {sorted(expected.keys() ^ found.keys())[:3]} are not both here and there"
        if changes_input:
            shutil.rmtree(case.user.path)
            shutil.copytree(case.folder / "kept", case.user.path)
        again = case.run()
        if again.returncode not in (0, 1) and not (changes_input and status == 0):
            return f"run again, it ends with {again.returncode}: {again.stderr[-600:]}"
        found = case.published()
        if found != expected and not (changes_input and status == 0):
            differ = sorted(name for name in found.keys() | expected if found.get(name) != expected.get(name))
            return f"run again, {differ[:3]} differ"
        left = [path.name for path in case.there.iterdir() if path.name.endswith((".partial", "lock", ".owner"))]
        if left and "--shard" not in case.words:
            return f"run again, {left} is left"
    except AssertionError as error:
        return str(error)
    return None


def commands_of(name: str | None) -> list[FuzzedCommand]:
    """All, or those in whose tool and name the pattern ``name`` is found."""
    return [command for command in COMMANDS if name is None or re.search(name, f"{command.tool} {command.name}")]


def try_case(seed: int, sources: Path, folder: Path, kind: str, name: str | None = None) -> Found:
    """One case in an empty ``folder``; everything about it follows from the seed."""
    draw = random.Random(seed)
    commands = [command for command in commands_of(name) if kind == "files" or command.reads or command.writes]
    command = draw.choice(commands)
    case = Case(seed, folder, sources, command, hostile=kind == "files")
    status, problem = (try_files if kind == "files" else try_fault)(case)
    return Found(f"{kind} {command.tool} {command.name}", status, problem)


def _prepare(arguments: list[str]) -> None:
    prepare(Path(arguments[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", help="only those in whose tool and name this pattern is found")
    parser.add_argument("--kind", choices=("files", "fault"), help="only these")
    chosen = parser.parse_args()
    ends: Counter[tuple[str, int | None]] = Counter()
    broken = 0
    with tempfile.TemporaryDirectory() as place:
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
                found = try_case(seed, sources, folder, kind, chosen.command)
            except Exception as error:
                found = Found("this script", None, f"{type(error).__name__}: {error}")
            shutil.rmtree(folder)
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
