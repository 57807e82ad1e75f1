"""MLCommons' downloader: a script that the user has and names, run for them as they would run it.

Asked for a folder (``-d``) and an address, it signs in with a browser, writes ``NAME.md5`` and the listed files into
the folder, and goes on where it was ended (mlcommons/r2-downloader, as of July 2026). Nothing here fetches the script.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from checksums.md5_list import compare_lists, read_list
from data_prep.preparation.artifacts import DOWNLOADS, DOWNLOADS_BY_FILE, Download
from stage.child_processes import end_with_parent
from stage.digest import md5_file
from stage.errors import CheckFailed, InputError

FOLDER = "downloads"
"""Below the output folder, with one for each download."""


@dataclass(frozen=True)
class Downloader:
    """The script, and what it is to bring."""

    script: Path
    downloads: Sequence[Download]

    def bring(self, download: Download, folder: Path) -> str:
        """Run the script and compare what it brought into ``folder`` with the list that came along; the list's MD5.

        Raises InputError where the script cannot be run or fails, CheckFailed where a file is not as listed. What is in
        the folder stays: the script goes on from it.
        """
        name = PurePosixPath(download.metadata).stem
        folder.mkdir(parents=True, exist_ok=True)
        self._run(["-d", str(folder.resolve()), DOWNLOADS + download.metadata], folder)
        listing = folder / f"{name}.md5"
        if not listing.is_file():
            raise InputError(f"--downloader {self.script}: ended well, but wrote no {listing}; is it MLCommons'?")
        found = compare_lists(folder, read_list(listing), leave_out=listing)
        wrong = [*found.changed, *found.may_differ, *found.missing]
        if wrong:
            raise CheckFailed(
                f"{folder / wrong[0]}: {'missing, but' if wrong[0] in found.missing else 'not as it is'} listed in "
                f"{listing} ({len(wrong):,} such files); remove them and run the command again"
            )
        return md5_file(listing)

    def _run(self, words: Sequence[str], folder: Path) -> None:
        """In ``folder``, with our terminal: it asks the user to sign in. Its output goes to our standard error."""
        sys.stdout.flush()
        try:
            done = subprocess.run(
                [str(self.script.resolve()), *words], cwd=folder, stdout=2, preexec_fn=end_with_parent, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"--downloader {self.script}: cannot be run ({reason}); it must begin with #!") from error
        if done.returncode:
            how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
            raise InputError(
                f"--downloader {self.script}: ended with {how}; what came is in {folder}, and the same command goes on"
            )


def parse_downloader(script: Path | None, files: Sequence[str]) -> Downloader | None:
    """``--downloader`` and ``--download``. Raises InputError for one without the other, for a script that cannot be
    run, and for what is not in the table."""
    possible = ", ".join(DOWNLOADS_BY_FILE)
    if script is None:
        if files:
            raise InputError("--download: only with --downloader SCRIPT, which brings it")
        return None
    if not files:
        raise InputError(f"--downloader {script}: say by --download what it is to bring: {possible}")
    for file in files:
        if file not in DOWNLOADS_BY_FILE:
            raise InputError(f"--download {file}: expected {possible}")
    if not script.is_file():
        raise InputError(f"--downloader {script}: no such file; get MLCommons' script first")
    if not os.access(script, os.X_OK):
        raise InputError(f"--downloader {script}: not executable; look at what it does, then chmod +x")
    return Downloader(script, [DOWNLOADS_BY_FILE[file] for file in dict.fromkeys(files)])
