"""Creating and verifying md5sum-style lists."""

import errno
import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from checksums.md5_list import compare_lists, digest_folder, format_list, read_list, without_leading_folders
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
    (folder / "line\nend\r").write_bytes(b"y")
    return folder


def test_list_is_what_md5sum_prints(folder: Path) -> None:
    names = sorted(["A.bin", "b.bin", "line\nend\r", "sub/a.bin", "with space and \\"])
    expected = subprocess.run(["md5sum", *names], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert format_list(digest_folder(folder)) == expected


def test_create_then_verify(folder: Path, tmp_path: Path) -> None:
    manifest = folder / "inside.md5"
    assert command("checksums", "create", folder, "--output", manifest).returncode == 0
    done = command("checksums", "verify", folder, "--manifest", manifest)
    assert (done.returncode, "5 files match, 0 changed, 0 missing\n" in done.stdout) == (0, True)


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
    assert f"EXTRA  {folder}/notes" in done.stdout
    assert "3 files match, 1 changed, 1 missing; 1 not in the list" in done.stdout
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
    assert compare_lists(folder, read_list(path)).matching == ["b.bin", "sub/a.bin", names]


@pytest.mark.parametrize("options", ["", "--tag", "--binary", "--text"])
def test_all_that_md5sum_writes_is_read(options: str, folder: Path, tmp_path: Path) -> None:
    find = f"find . -type f -exec md5sum {options} {{}} +"
    (tmp_path / "list").write_bytes(subprocess.run(find, shell=True, cwd=folder, capture_output=True).stdout)
    assert read_list(tmp_path / "list") == digest_folder(folder)


def test_lists_of_bsd_and_openssl_are_read(tmp_path: Path) -> None:
    one, two, three = ("1" * 32, "2" * 32, "3" * 32)
    (tmp_path / "list").write_text(f"MD5 (a (1) = b) = {one}\r\n  {two} c\nMD5(d)= {three}\n")
    assert read_list(tmp_path / "list") == {"a (1) = b": one, "c": two, "d": three}


@pytest.mark.parametrize("place", ["data", "release/data", "/elsewhere/data", "{folder}"])
def test_paths_that_begin_with_other_folders_are_understood(place: str, folder: Path, tmp_path: Path) -> None:
    place = place.format(folder=folder)
    digests = {f"{place}/{name}": digest for name, digest in digest_folder(folder).items()}
    (tmp_path / "list").write_text(format_list(digests))
    done = command("checksums", "verify", folder, "--manifest", tmp_path / "list")
    assert (done.returncode, "5 files match, 0 changed, 0 missing" in done.stdout) == (0, True)
    assert done.stderr == f"{tmp_path}/list: its paths begin with {place}/, read as {folder}/\n"
    (folder / "b.bin").unlink()
    done = command("checksums", "verify", folder, "--manifest", tmp_path / "list")
    assert (done.returncode, f"MISSING  {folder}/b.bin\n" in done.stdout) == (1, True)


def test_only_as_many_folders_are_taken_off_as_it_takes(folder: Path) -> None:
    def understood(*names: str) -> tuple[str, list[str]]:
        leading, listed = without_leading_folders(folder, dict.fromkeys(names, ""))
        return leading, list(listed)

    assert understood("sub/a.bin") == ("", ["sub/a.bin"])
    assert understood("data/sub/a.bin", "data/sub/b") == ("data/", ["sub/a.bin", "sub/b"])
    assert understood("sub/b.bin") == ("", ["sub/b.bin"])  # there is such a folder: the file is missing in it
    assert understood("x/b.bin", "y/b.bin") == ("", ["x/b.bin", "y/b.bin"])
    assert understood("xy/b.bin", "xz/b.bin") == ("", ["xy/b.bin", "xz/b.bin"])
    assert understood("nowhere/to/be/found") == ("", ["nowhere/to/be/found"])
    for names in (["/etc/passwd"], ["/x/b.bin", "A.bin"], ["/x/b.bin", "/y/A.bin"]):
        with pytest.raises(InputError, match="is listed, which is not below"):
            understood(*names)


def test_many_small_files_and_links(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep" / "er").mkdir(parents=True)
    contents = {f"deep/er/{number}": str(number).encode() * number for number in range(300)}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "link").symlink_to("deep/er/7")
    (folder / "linked").symlink_to("deep")
    expected = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    expected["link"] = expected["deep/er/7"]
    found = digest_folder(folder)
    assert list(found.items()) == sorted(expected.items())
    assert compare_lists(folder, {**expected, "linked/er/9": expected["deep/er/9"]}).holds
    (folder / "broken").symlink_to("nothing")
    with pytest.raises(InputError, match="broken: a broken link"):
        digest_folder(folder)
    assert compare_lists(folder, {**expected, "broken": "0" * 32}).missing == ["broken"]


def test_extra_files_are_counted_and_the_first_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(9):
        (tmp_path / "data" / str(number)).touch()
    (tmp_path / "list").write_text(f"{hashlib.md5(b'').hexdigest()}  0\n")
    done = command("checksums", "verify", tmp_path / "data", "--manifest", tmp_path / "list")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        *(f"EXTRA  {tmp_path}/data/{number}" for number in range(1, 6)),
        "EXTRA  and 3 more; --json names all",
        f"{tmp_path}/data: 1 files match, 0 changed, 0 missing; 8 not in the list",
    ]


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.read", broken)
    with pytest.raises(OSError, match=r"Input/output error: '.*/data/"):
        digest_folder(folder)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("no digest here", "list:1: expected '<md5>  <path>'"),
        ("0" * 64 + "  a.sha256", "list:1: expected '<md5>  <path>'"),
        ("0" * 32 + "  ../outside", "not below the folder"),
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


def test_small_files_of_a_megatron_checkpoint_may_differ_but_not_be_missing(tmp_path: Path) -> None:
    folder, manifest = tmp_path / "checkpoint", tmp_path / "list.md5"
    (folder / "language_model.encoder.final_layernorm.bias").mkdir(parents=True)
    for name in ("language_model.encoder.final_layernorm.bias/0", "metadata.json", "common.pt"):
        (folder / name).write_text("as it was")
    manifest.write_text(format_list(digest_folder(folder)))
    (folder / "metadata.json").write_text("written by another converter")
    done = command("checksums", "verify", folder, "--manifest", manifest)
    assert done.returncode == 0, done.stdout
    assert f"MAY DIFFER  {folder}/metadata.json\n" in done.stdout
    assert "2 files match, 0 changed, 0 missing, 1 may differ\n" in done.stdout
    (folder / "common.pt").unlink()
    assert not compare_lists(folder, read_list(manifest)).holds


def test_the_same_names_elsewhere_may_not_differ(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text("a")
    listed = digest_folder(tmp_path)
    (tmp_path / "metadata.json").write_text("b")
    result = compare_lists(tmp_path, {**listed, "other/language_model.x/0": "0" * 32})
    assert (result.changed, result.may_differ) == (["metadata.json"], [])
