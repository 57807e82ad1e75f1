"""One random case: a command with its options over one user's files, in a folder that is there for it alone."""

import os
import random
import shutil
import subprocess
from pathlib import Path

from checksums.folder_sums import digest_folder
from foundation.file_formats.md5_list import read_list
from foundation.outputs.digest import md5_file
from tests.forked import run_forked, run_module
from tests.fuzz.failing_calls import FailingCall, limit_process, run_with_failing_call
from tests.fuzz.fuzzed_commands import COMMANDS, HOSTILE, PATHS, Argument, FuzzedCommand
from tests.fuzz.user_files import ServedFiles, UserFiles

DIFFERS = ("common.pt", ".manifest.json", ".md5", ".metadata")
"""Endings of files whose bytes differ every time: PyTorch's, and what holds sums or times."""
ODD_OUTPUTS = ("b c", "n\nl", "\udcfe", "back\\slash", "a" * 240)
NOT_PLAIN = ("--plan", "--bandwidth-limit")
"""With which a command makes nothing, or refuses good files: without a manifest, or of this machine."""
NOBODY = 65534
LONGEST_S = 60.0
"""Time that a case may take, on a machine that is busy with other things."""
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
        self.closed: Path | None = None
        """Folder or file whose rights are taken away, from the administrator, too: the command then runs as nobody."""
        if hostile and self.draw.random() < 0.08:
            places = [self.there, self.folder, self.user.path, *(path for _, path in self.user.taken)]
            self.closed = self.draw.choice(places)
        if hostile and self.draw.random() < 0.5:
            served.fail_at_random(self.draw)

    @property
    def served_paths(self) -> dict[str, Path]:
        """What lies at each address among the words."""
        return dict(self._served.paths)

    def _words(self) -> list[str]:
        draw, words = self.draw, list[str]()
        for one in self.command.arguments:
            if one.sometimes and not self.hostile and one.option in NOT_PLAIN:
                continue
            if not one.sometimes or draw.random() < (0.25 if self.hostile else 0.08):
                words += ([one.option] if one.option else []) + self._values(one)
        if any(word.startswith("s3://") for word in words):
            words += ["--endpoint-url", self._served.endpoint]
        if self.hostile and draw.random() < 0.08:
            words += self._one_too_many(words)
        return words

    def _one_too_many(self, words: list[str]) -> list[str]:
        """An option that is not known, is another command's, or is there already, perhaps with another value."""
        other = self.draw.choice(COMMANDS)
        again = [word for word in words if word.startswith("--")]
        option = self.draw.choice(["--no-such", "stray", "--workers", *again, *(one.option for one in other.arguments)])
        return [option, *([] if self.draw.random() < 0.3 else [self.draw.choice([*HOSTILE, *words])])]

    def _values(self, one: Argument) -> list[str]:
        """Return the words after an option."""
        draw = self.draw
        if one.output:
            self.output = self._output(one.output)
            return [str(self.output)]
        if one.pattern:
            by_address = "@" in one.marks and draw.random() < 0.25
            count = draw.choice([1, 1, 2, 3]) if "+" in one.marks else 1
            return [self._one(one.pattern, by_address=by_address) for _ in range(count)]
        if not self.hostile:
            return [one.values[0 if draw.random() < 0.8 else -1]] if one.values else []
        return [draw.choice(HOSTILE if draw.random() < 0.15 else one.values)] if one.values else []

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

    def _output(self, name: str) -> Path:
        usual = self.there / name
        if not self.hostile or self.draw.random() < 0.7:
            return usual
        users = [path for _, path in self.user.taken]
        odd = [self.there / f"{odd}{name}" for odd in ODD_OUTPUTS]
        places: list[Path] = (
            [self._of_the_users(usual, users)] * 4
            + [*odd, *users, *users, self.user.path, self.folder, self.there / "mine" / "x", Path("/proc/x"), Path()]
            + [self.there / "new" / "deep" / name, *(path / "x" for path in users)]
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
                inside = digest_folder(path).items()
                digests = {name: md5 for name, md5 in inside if not (name.endswith(NOT_OUTPUT) or ".partial/" in name)}
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
        """Raises subprocess.TimeoutExpired."""
        if fault is None and not counts:
            return self._run_plainly()
        failing = ["open", "0", "EIO", ""] if fault is None else fault.words()
        words = [str(self.folder), counts, *failing, *self.words]
        return run_forked(run_with_failing_call, words, folder=self.folder, timeout=LONGEST_S)

    def _run_plainly(self) -> "subprocess.CompletedProcess[str]":
        closes = self.closed is not None and self.closed.exists()
        if self.closed is not None and closes:
            for path in [self.folder, *self.folder.rglob("*")]:
                if os.geteuid() == 0:
                    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
            self.closed.chmod(self.draw.choice([0o555, 0o444, 0o333, 0o111, 0]))
        words = [str(NOBODY if closes and os.geteuid() == 0 else 0), *self.words]
        try:
            return run_forked(run_module_as, words, folder=self.folder, timeout=LONGEST_S)
        finally:
            if self.closed is not None and self.closed.exists():
                self.closed.chmod(0o755)


def run_module_as(arguments: list[str]) -> None:
    """Run ``python -m`` of the words after the first, which is a user's number; 0 leaves the user as it is."""
    user, *words = arguments
    limit_process()
    if int(user):
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    run_module(words)


def _is_no_output(path: Path) -> bool:
    """What is written on the way, and what is no file."""
    return path.name.endswith(NOT_OUTPUT) or path.is_symlink()
