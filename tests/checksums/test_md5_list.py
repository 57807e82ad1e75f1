"""Creating and verifying md5sum-style lists."""

import json
import subprocess
from pathlib import Path

import pytest

from checksums.md5_list import compare, digest_folder, format_list, read_list
from stage.errors import InputError
from tests.support import REPOSITORY, assert_refused, command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "b.bin").write_bytes(b"b" * 100)
    (folder / "sub" / "a.bin").write_bytes(bytes(3_000_000))
    (folder / "A.bin").write_bytes(b"")
    (folder / "with space and \\").write_bytes(b"x")
    return folder


def test_list_is_what_md5sum_prints(folder: Path) -> None:
    names = sorted(["A.bin", "b.bin", "sub/a.bin", "with space and \\"])
    expected = subprocess.run(["md5sum", *names], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert format_list(digest_folder(folder)) == expected


def test_create_then_verify(folder: Path, tmp_path: Path) -> None:
    manifest = folder / "inside.md5"
    assert command("checksums", "create", folder, "--output", manifest).returncode == 0
    done = command("checksums", "verify", folder, "--manifest", manifest)
    assert (done.returncode, "4 files match, 0 changed, 0 missing" in done.stdout) == (0, True)


def test_verify_names_what_differs(folder: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "list.md5"
    manifest.write_text(format_list(digest_folder(folder)))
    (folder / "b.bin").write_bytes(b"b" * 99 + b"c")
    (folder / "A.bin").unlink()
    (folder / "notes").touch()
    done = command("checksums", "verify", folder, "--manifest", manifest)
    assert done.returncode == 1
    assert f"CHANGED  {folder}/b.bin" in done.stdout
    assert f"MISSING  {folder}/A.bin" in done.stdout
    assert "2 files match, 1 changed, 1 missing; 1 not in the list" in done.stdout
    found = json.loads(command("checksums", "verify", folder, "--manifest", manifest, "--json").stdout)
    assert (found["changed"], found["missing"], found["extra"]) == (["b.bin"], ["A.bin"], ["notes"])


def test_other_writings_of_a_list_are_read(folder: Path, tmp_path: Path) -> None:
    digests = digest_folder(folder)
    lines = [
        "# published sums",
        "",
        f"{digests['b.bin'].upper()} *./b.bin\r",
        f"{digests['sub/a.bin']}  sub//a.bin",
        f"\\{digests[names := chr(119) + 'ith space and ' + chr(92)]}  with space and \\\\",
    ]
    path = tmp_path / "list"
    path.write_text("\n".join(lines))
    assert compare(folder, read_list(path)).matching == ["b.bin", "sub/a.bin", names]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("no digest here", "list:1: expected '<md5>  <path>'"),
        ("0" * 32 + "  ../outside", "not below the folder"),
        ("0" * 32 + "  /etc/passwd", "not below the folder"),
        ("", "lists no file"),
        ("0" * 32 + "  a\n" + "1" * 32 + "  ./a", "listed twice with different sums"),
    ],
)
def test_bad_lists_are_refused(line: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text(line)
    with pytest.raises(InputError, match=complaint.replace("<", r"\<")):
        read_list(path)


def test_bad_usage_is_status_2(tmp_path: Path) -> None:
    published = REPOSITORY / "checksums" / "dataset_checksum.log"
    assert_refused(command("checksums", "verify", tmp_path / "none", "--manifest", published), "no such folder")
    assert_refused(command("checksums", "verify", tmp_path, "--manifest", tmp_path / "none"), "none")
    assert_refused(command("checksums", "verify", tmp_path), "--manifest")


def test_published_sums_are_all_there() -> None:
    names = set(read_list(REPOSITORY / "checksums" / "dataset_checksum.log"))
    parts = ("c4_en_6", "c4_en_7", "c4_en_validation_subset")
    assert names == {f"{part}_c4_spm_text_document.{kind}" for part in parts for kind in ("bin", "idx")}
