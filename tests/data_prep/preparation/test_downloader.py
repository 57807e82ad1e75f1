"""fetch --downloader: the user's script is run as it is, what it brings is compared with its list, and is not brought
twice."""

import json
from pathlib import Path

import pytest

from data_prep.preparation.downloader import parse_downloader
from data_prep.preparation.fetch import fetch, wanted_files
from stage.errors import CheckFailed, InputError
from tests.support import assert_refused, command

TAR = "dataset_c4_spm.tar"
NAME = "gpt-3-megatron-preprocessed-dataset"
BRINGS = f"""#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
[ -e "$2/half" ] || {{ touch "$2/half"; exit 4; }}
printf 'archive' > "$2/{TAR}"
cd "$2" && md5sum {TAR} half > {NAME}.md5
"""
"""As far as it matters here; broken off the first time."""


def script(folder: Path, text: str, *, mode: int = 0o755) -> Path:
    path = folder / "the downloader.sh"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_it_is_run_for_what_is_asked_goes_on_and_is_not_run_again(tmp_path: Path) -> None:
    path, output = script(tmp_path, BRINGS), tmp_path / "c 4"
    words = ["fetch", "--output", output, "--what", "tokenizer", "--downloader", path, "--download", TAR, "--json"]
    assert_refused(command("data_prep", *words), "ended with status 4", "and the same command goes on")
    for _ in range(2):
        done = command("data_prep", *words)
        assert_refused(done, "1 of 1 files are missing", status=1)  # the archive is the user's to unpack
        assert json.loads(done.stdout)[0]["there"] is False
    assert (output / "downloads" / NAME / TAR).read_text() == "archive"
    calls = (tmp_path / "calls").read_text().splitlines()
    address = f"https://training.mlcommons-storage.org/metadata/{NAME}.uri"
    assert calls == [f"-d {output / 'downloads' / NAME} {address}"] * 2
    (output / "downloads" / NAME / TAR).write_text("ARCHIVE!")
    command("data_prep", *words)
    assert len((tmp_path / "calls").read_text().splitlines()) == 3  # changed since: brought again


@pytest.mark.parametrize(
    ("ending", "complaint"),
    [
        (f'echo >> "$2/{TAR}"', f"{TAR}: not as it is listed in .*{NAME}.md5 .1 such files.; remove them"),
        (f'rm "$2/{TAR}"', f"{TAR}: missing, but listed in"),
        (f'rm "$2/{NAME}.md5"', f"ended well, but wrote no .*{NAME}.md5"),
        ("kill -9 $$", "ended with signal 9"),
        (f'echo "{"0" * 32}  ../x" >> "$2/{NAME}.md5"', "'../x' is not below the folder to verify"),
    ],
)
def test_what_is_not_as_listed_is_not_taken(ending: str, complaint: str, tmp_path: Path) -> None:
    text = BRINGS.replace("exit 4; ", "")
    downloader = parse_downloader(script(tmp_path, f"{text}{ending}\n"), [TAR])
    with pytest.raises((InputError, CheckFailed), match=complaint):
        fetch(tmp_path / "c4", wanted_files(["tokenizer"], None), downloader=downloader)
    assert not (tmp_path / "c4" / "fetch.manifest.json").exists()


@pytest.mark.parametrize(
    ("mode", "text", "files", "complaint"),
    [
        (0o644, BRINGS, [TAR], "not executable; look at what it does, then chmod"),
        (0o755, BRINGS, [], "say by --download what it is to bring: dataset_c4_spm.tar, checkpoint_m"),
        (0o755, BRINGS, ["x"], "--download x: expected dataset_c4_spm.tar"),
        (0o755, "no first line", [TAR], "cannot be run .Exec format error.; it must begin with #!"),
        (0o755, "#!/no/such/shell", [TAR], "cannot be run .No such file"),
    ],
)
def test_a_script_that_cannot_be_run(mode: int, text: str, files: list[str], complaint: str, tmp_path: Path) -> None:
    path = script(tmp_path, text, mode=mode)
    with pytest.raises(InputError, match=complaint):
        fetch(tmp_path / "c4", [], downloader=parse_downloader(path, files))


def test_one_option_without_the_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--download: only with --downloader SCRIPT"):
        parse_downloader(None, [TAR])
    with pytest.raises(InputError, match="none: no such file; get MLCommons' script first"):
        parse_downloader(tmp_path / "none", [TAR])
