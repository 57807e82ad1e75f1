"""fetch --downloader: the user's script is run as it is, what it brings is compared with its list, and is not brought
twice."""

import json
from pathlib import Path

import pytest

from data_prep.preparation.artifacts import DATASET_TAR
from data_prep.preparation.downloader import bring
from stage.errors import CheckFailed, InputError
from tests.support import assert_refused, command

TAR, NAME = DATASET_TAR.file, DATASET_TAR.name
BRINGS = f"""#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
[ -e "$2/half" ] || {{ touch "$2/half"; exit 4; }}
printf 'archive' > "$2/{TAR}"
cd "$2" && md5sum {TAR} half > {NAME}.md5
"""
"""Breaks off the first time."""


def script(folder: Path, text: str, *, mode: int = 0o755) -> Path:
    path = folder / "the downloader.sh"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_it_is_run_for_what_is_asked_goes_on_and_is_not_run_again(tmp_path: Path) -> None:
    path, output = script(tmp_path, BRINGS), tmp_path / "c 4"
    words = ["fetch", "--output", output, "--what", "tokenizer", "--downloader", path]
    assert_refused(command("data_prep", *words), "--downloader SCRIPT needs --download FILE")
    words += ["--download", TAR, "--json"]
    assert_refused(command("data_prep", *words), "ended with status 4", "and the same command goes on")
    for _ in range(2):
        done = command("data_prep", *words)
        assert_refused(done, "1 of 1 files are missing", status=1)  # the archive is the user's to unpack
        assert json.loads(done.stdout)[0]["there"] is False
    folder = output / "downloads" / NAME
    assert (folder / TAR).read_text() == "archive"
    address = f"https://training.mlcommons-storage.org/metadata/{NAME}.uri"
    assert (tmp_path / "calls").read_text().splitlines() == [f"-d {folder} {address}"] * 2
    (folder / TAR).write_text("ARCHIVE!")
    command("data_prep", *words)
    assert len((tmp_path / "calls").read_text().splitlines()) == 3  # changed since: brought again


@pytest.mark.parametrize(
    ("mode", "ending", "complaint"),
    [
        (0o755, f'echo >> "$2/{TAR}"', rf"{TAR}: missing, or not as it is listed in .*{NAME}.md5 .1 such files."),
        (0o755, f'rm "$2/{TAR}"', f"{TAR}: missing, or not as it is listed in"),
        (0o755, f'rm "$2/{NAME}.md5"', rf"ended well, but wrote no .*{NAME}.md5"),
        (0o755, "kill -9 $$", "ended with status -9"),
        (0o644, "", "cannot be run .*Permission denied"),
    ],
)
def test_what_is_not_as_listed_is_not_taken(mode: int, ending: str, complaint: str, tmp_path: Path) -> None:
    path = script(tmp_path, BRINGS.replace("exit 4; ", "") + f"{ending}\n", mode=mode)
    with pytest.raises((InputError, CheckFailed), match=complaint):
        bring(path, DATASET_TAR, tmp_path / "c4")
