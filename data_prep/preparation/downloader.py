"""MLCommons' downloader: a script that the user has and names, run for them as they would run it.

Asked for a folder (``-d``) and an address, it signs in with a browser, writes ``NAME.md5`` and the listed files into
the folder, and goes on where it was ended (mlcommons/r2-downloader, as of July 2026). Nothing here fetches the script.
"""

import subprocess
import sys
from pathlib import Path

from checksums.md5_list import compare_lists, read_list
from data_prep.preparation.artifacts import DOWNLOADS, Download
from stage.child_processes import end_with_parent
from stage.errors import CheckFailed, InputError
from stage.outputs.digest import md5_file


def bring(script: Path, download: Download, folder: Path) -> str:
    """Run the script and compare what it brought into ``folder`` with the list that came along; returns the list's MD5.

    Raises InputError where the script cannot be run or fails, CheckFailed where a file is not as listed. What is in the
    folder stays: the script goes on from it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = [str(script.resolve()), "-d", str(folder.resolve()), DOWNLOADS + download.metadata]
    sys.stdout.flush()
    try:  # with our terminal, for it asks the user to sign in; its output goes to our standard error
        done = subprocess.run(words, cwd=folder, stdout=2, preexec_fn=end_with_parent, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(
            f"--downloader {script}: cannot be run ({error}); is it executable, and begins with #!?"
        ) from error
    if done.returncode:
        raise InputError(
            f"--downloader {script}: ended with status {done.returncode}; what came is in {folder}, and the same "
            "command goes on"
        )
    listing = folder / f"{download.name}.md5"
    if not listing.is_file():
        raise InputError(f"--downloader {script}: ended well, but wrote no {listing}; is it MLCommons'?")
    found = compare_lists(folder, read_list(listing), leave_out=listing)
    wrong = [*found.changed, *found.may_differ, *found.missing]
    if wrong:
        raise CheckFailed(
            f"{folder / wrong[0]}: missing, or not as it is listed in {listing} ({len(wrong):,} such files); remove "
            "them and run the command again"
        )
    return md5_file(listing)
