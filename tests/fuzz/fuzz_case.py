"""One random case: a command with its options over one user's files, in a folder that is there for it alone."""

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from checksums.md5_list import digest_folder, read_list
from stage.outputs.digest import md5_file
from tests.forked import run_forked
from tests.fuzz.case_limits import LONGEST_S, CaseWatch
from tests.fuzz.circumstances import Circumstances, circumstances_at_random, run_in_posix_locale, run_module_as
from tests.fuzz.failing_calls import FailingCall, run_with_failing_call
from tests.fuzz.fuzzed_commands import COMMANDS, HOSTILE, PATHS, FuzzedCommand
from tests.fuzz.served_files import ServedFiles
from tests.fuzz.user_files import UserFiles

DIFFERS = ("common.pt", ".manifest.json", ".md5", ".metadata")
"""Endings of files whose bytes differ every time: PyTorch's, and what holds sums or times."""
ODD_OUTPUTS = ("b c", "n\nl", "\udcfe", "back\\slash", "a" * 240)
NOT_PLAIN = ("--plan", "--bandwidth-limit")
"""With which a command makes nothing, or refuses good files: without a manifest, or of this machine."""
NOT_OUTPUT = ("mine", "lock", ".partial")
THERE = ("folder", "file", "loop", "dangling", "pipe", "link to theirs", "other name of theirs", "partial", "parts")
"""What the user has where the output is to be, or what is written on the way to it."""


class Case:
    """``hostile``: some options absurd, some files damaged, circumstances unusual."""

    def __init__(
        self, seed: int, folder: Path, sources: Path, command: FuzzedCommand, served: ServedFiles, *, hostile: bool
    ) -> None:
        self.draw, self.folder, self.command = random.Random(seed), folder, command
        self.hostile, self._served = hostile, served
        self.user = UserFiles(folder / "user", sources, self.draw)
        served.serve(self.user.path)
        self.there = folder / "out"
        self.there.mkdir()
        (self.there / "mine").write_text("the user's")
        self.output: Path | None = None
        self.fault: FailingCall | None = None
        """What was made to fail."""
        self.words = [command.tool, command.name, *self._words()]
        self.circumstances = Circumstances()
        if hostile:
            places = [self.there, self.folder, self.user.path, *(path for _, path in self.user.taken)]
            self.circumstances = circumstances_at_random(self.draw, places)
            if self.draw.random() < 0.5:
                served.fail_at_random(self.draw)

    @property
    def served_paths(self) -> dict[str, Path]:
        """What lies at each address among the words."""
        return dict(self._served.paths)

    def _words(self) -> list[str]:
        draw, command = self.draw, self.command
        words = [word for option, pattern in command.reads.items() for word in self._reads(option, pattern)]
        for option, pattern in command.sometimes_reads.items():
            words += self._reads(option, pattern) if draw.random() < (0.3 if self.hostile else 0.1) else []
        for option, values in command.options.items():
            words += [option, self._value(values)]
        for option, values in command.sometimes.items():
            if not self.hostile and option in NOT_PLAIN:
                continue
            words += [option, self._value(values)] if draw.random() < (0.25 if self.hostile else 0.1) else []
        flags = [flag for flag in command.flags if self.hostile or flag not in NOT_PLAIN]
        words += [flag for flag in flags if draw.random() < (0.2 if self.hostile else 0.05)]
        if any(word.startswith("s3://") for word in words):
            words += ["--endpoint-url", self._served.endpoint]
        if command.writes is not None:
            self.output = self._output()
            words += [command.writes, str(self.output)]
        if self.hostile and draw.random() < 0.08:
            words += self._one_too_many(words)
        return words

    def _one_too_many(self, words: list[str]) -> list[str]:
        """An option that is not known, is another command's, or is there already, perhaps with another value."""
        other = self.draw.choice(COMMANDS)
        again = [word for word in words if word.startswith("--")]
        option = self.draw.choice(
            ["--no-such", "stray", "--workers", *again, *other.options, *other.sometimes, *other.flags]
        )
        return [option, *([] if self.draw.random() < 0.3 else [self.draw.choice([*HOSTILE, *words])])]

    def _value(self, values: Sequence[str]) -> str:
        if not self.hostile:
            return values[0] if self.draw.random() < 0.8 else values[-1]
        pool: Sequence[str] = HOSTILE if self.draw.random() < 0.15 else values
        return self.draw.choice(pool)

    def _reads(self, option: str, pattern: str) -> list[str]:
        count = self.draw.choice([1, 1, 2, 3]) if option in self.command.several else 1
        by_address = option in self.command.by_address and self.draw.random() < 0.25
        taken = [self._one(pattern, by_address=by_address) for _ in range(count)]
        return ([option] if option.strip() else []) + taken

    def _one(self, pattern: str, *, by_address: bool) -> str:
        if self.hostile and self.draw.random() < 0.05:
            return self.draw.choice(PATHS)
        path = self.user.take(pattern, spoil=0.4 if self.hostile else 0.0, odd=self.hostile and not by_address)
        if by_address:
            return self._served.address(path, self.draw)
        if self.hostile and path.exists() and self.draw.random() < 0.05:
            link = path.with_name(f"link.{path.name}")
            link.symlink_to(path)
            return str(link)
        return str(path)

    def _output(self) -> Path:
        usual = self.there / self.command.output
        if not self.hostile or self.draw.random() < 0.7:
            return usual
        users = [path for _, path in self.user.taken]
        odd = [self.there / f"{name}{self.command.output}" for name in ODD_OUTPUTS]
        places: list[Path] = (
            [self._of_the_users(usual, users)] * 4
            + [*odd, *users, *users, self.user.path, self.folder, self.there / "mine" / "x", Path("/proc/x"), Path()]
            + [self.there / "new" / "deep" / self.command.output, *(path / "x" for path in users)]
        )
        return self.draw.choice(places)

    def _of_the_users(self, path: Path, users: list[Path]) -> Path:
        """Something that the user has where the output is to be, or beside it."""
        kind = self.draw.choice(THERE)
        theirs = self.draw.choice([*users, self.there / "mine"])
        if kind in ("partial", "parts"):
            (beside := path.with_name(f"{path.name}.{kind}")).mkdir()
            (beside / "notes").write_text("the user's")
        elif kind == "folder":
            path.mkdir()
            (path / "notes").write_text("the user's")
        elif kind == "file":
            path.write_text("the user's")
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "other name of theirs" and theirs.is_file() and not theirs.is_symlink():
            path.hardlink_to(theirs)
        elif kind == "link to theirs":
            path.symlink_to(theirs)
        else:
            path.symlink_to(path.name if kind == "loop" else "nowhere")
        return path

    def state(self) -> dict[str, str]:
        """Of all that is the user's."""
        return {**self.user.state(), **UserFiles.state_of(self.there)}

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
        links = [(path, path.readlink()) for path in self.user.path.rglob("link.*") if path.is_symlink()]
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
        for link, target in links:
            link.symlink_to(target)

    def run(self, fault: FailingCall | None = None, counts: str = "") -> "subprocess.CompletedProcess[str]":
        """Raises OverLimit."""
        if fault is None and not counts:
            return self._run_plainly()
        failing = ["open", "0", "EIO", ""] if fault is None else fault.words()
        words = [str(self.folder), counts, *failing, *self.words]
        return run_forked(run_with_failing_call, words, folder=self.folder, timeout=LONGEST_S, look=CaseWatch())

    def _run_plainly(self) -> "subprocess.CompletedProcess[str]":
        if self.circumstances.posix_locale:
            return run_in_posix_locale(self.words, self.folder, CaseWatch())
        words = [*self.circumstances.words(), *self.words]
        self.circumstances.apply(self.folder)
        try:
            return run_forked(run_module_as, words, folder=self.folder, timeout=LONGEST_S, look=CaseWatch())
        finally:
            self.circumstances.undo()


def _is_no_output(path: Path) -> bool:
    """What is written on the way, and what is no file."""
    return path.name.endswith(NOT_OUTPUT) or path.is_symlink()
