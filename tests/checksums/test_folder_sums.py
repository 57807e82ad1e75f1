"""Creating and reading md5sum-style lists, and comparing a folder with one."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from checksums.folder_sums import compare_lists, digest_folder, without_leading_folders
from foundation.errors import InputError
from foundation.file_formats.md5_list import format_list, read_list
from tests.support import REPOSITORY


def test_list_is_what_md5sum_prints(folder: Path) -> None:
    names = sorted(["A.bin", "b.bin", "line\nend\r", "sub/a.bin", "with space and \\"])
    expected = subprocess.run(["md5sum", *names], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert format_list(digest_folder(folder)) == expected


@pytest.mark.parametrize("options", ["--tag", "--binary"])
def test_all_that_md5sum_writes_is_read(options: str, folder: Path, tmp_path: Path) -> None:
    find = f"find . -type f -exec md5sum {options} {{}} +"
    (tmp_path / "list").write_bytes(subprocess.run(find, shell=True, cwd=folder, capture_output=True).stdout)
    assert read_list(tmp_path / "list") == digest_folder(folder)


def test_lists_of_bsd_are_read(tmp_path: Path) -> None:
    one, two = "1" * 32, "2" * 32
    lines = [f"MD5 (a (1) = b) = {one}\r", f"  {two} c", "# published", "", f"{'A' * 32} *./d//e"]  # md5, md5 -r
    (tmp_path / "list").write_text("\n".join(lines))
    assert read_list(tmp_path / "list") == {"a (1) = b": one, "c": two, "d/e": "a" * 32}
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: expected a list of MD5 sums"):
        read_list(tmp_path / "pipe")


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
    expected |= {f"linked{name.removeprefix('deep')}": md5 for name, md5 in expected.items() if name[:5] == "deep/"}
    found = digest_folder(folder)
    assert list(found.items()) == sorted(expected.items())
    assert compare_lists(folder, {**expected, "linked/er/9": expected["deep/er/9"]}).holds
    (folder / "broken").symlink_to("nothing")
    with pytest.raises(InputError, match="broken: a broken link"):
        digest_folder(folder)
    assert compare_lists(folder, {**expected, "broken": "0" * 32}).missing == ["broken"]


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


def test_published_sums_are_all_there() -> None:
    names = set(read_list(REPOSITORY / "checksums" / "dataset_checksum.log"))
    parts = ("c4_en_6", "c4_en_7", "c4_en_validation_subset")
    assert names == {f"{part}_c4_spm_text_document.{kind}" for part in parts for kind in ("bin", "idx")}


def test_the_same_names_elsewhere_may_not_differ(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text("a")
    listed = digest_folder(tmp_path)
    (tmp_path / "metadata.json").write_text("b")
    result = compare_lists(tmp_path, {**listed, "other/language_model.x/0": "0" * 32})
    assert (result.changed, result.may_differ) == (["metadata.json"], [])


def test_a_folder_of_links_to_folders(tmp_path: Path) -> None:
    """They may lie anywhere, and two links may lead to the same folder; a link back would never end."""
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "data" / "inner" / "a").write_text("a")
    folder = tmp_path / "links"
    folder.mkdir()
    for name in ("first", "second"):
        (folder / name).symlink_to(tmp_path / "data")
    assert list(digest_folder(folder)) == ["first/inner/a", "second/inner/a"]
    (tmp_path / "data" / "inner" / "back").symlink_to(folder)
    with pytest.raises(InputError, match=r"inner/back: a link back to .*links, which would be read without an end"):
        digest_folder(folder)
