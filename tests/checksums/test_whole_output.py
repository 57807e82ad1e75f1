"""All contents against the manifest."""

from pathlib import Path

import pytest

from checksums.folder_sums import digest_folder
from checksums.list_commands import VerifyListCommand
from foundation.errors import InputError
from foundation.file_formats.md5_list import format_list
from foundation.outputs.digest import md5_file, md5_text
from foundation.outputs.manifest import Recipe, Record, made_by, record_of, write_manifest


def write_outputs(output: Path, records: list[Record]) -> None:
    write_manifest(output, made_by(Recipe("x", {}, []), records, wall_s=1.0))


def test_verify_reads_manifests_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files are named one by one; a changed folder without a list of sums is one line."""
    paths = [tmp_path / "x.bin", tmp_path / "x.idx", tmp_path / "folder"]
    for path in paths[:2]:
        path.write_text(path.name)
    paths[2].mkdir()
    for name in ("file", "another"):
        (paths[2] / name).write_text("content")
    md5s = [md5_file(paths[0]), md5_file(paths[1]), md5_text(format_list(digest_folder(paths[2])))]
    records = [record_of(path, path.name, md5) for path, md5 in zip(paths, md5s, strict=True)]

    def verify(name: str) -> tuple[int, list[str]]:
        status = VerifyListCommand(tmp_path, tmp_path / f"{name}.manifest.json").run()
        return status, capsys.readouterr().out.splitlines()

    write_outputs(tmp_path / "x", records)
    assert verify("x") == (0, [f"{tmp_path}: 4 files match, 0 changed, 0 missing"])
    (paths[0]).write_text("nib.x")
    (paths[2] / "file").write_text("tnetnoc")
    paths[1].unlink()
    status, lines = verify("x")
    assert status == 1
    assert lines[:3] == [f"CHANGED  {paths[0]}", f"CHANGED  {paths[2]}", f"MISSING  {paths[1]}"]
    with pytest.raises(InputError, match=r"none\.manifest\.json: no such file"):
        verify("none")
    for name, md5 in (("../x", md5s[0]), ("/etc/passwd", md5s[0]), ("x.bin", None)):
        bad = [Record(name, 1, 5, md5, 0)]
        write_outputs(tmp_path / "b", bad)
        with pytest.raises(InputError, match="has no MD5 of"):
            verify("b")


def test_verify_takes_the_output_itself_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The manual's command line said MISSING. The output may lie elsewhere by now, under another name."""
    output = tmp_path / "out"
    output.mkdir()
    for name in "01":
        (output / name).write_text("content")
    listing = format_list(digest_folder(output))
    (tmp_path / "out.md5").write_text(listing)
    md5 = md5_text(listing)
    write_outputs(output, [record_of(tmp_path / name, name, md5) for name in ("out", "out.md5")])

    def verify(folder: Path) -> tuple[int, str]:
        status = VerifyListCommand(folder, tmp_path / "out.manifest.json").run()
        return status, capsys.readouterr().out

    assert verify(tmp_path) == (0, f"{tmp_path}: 3 files match, 0 changed, 0 missing\n")
    assert verify(output) == (0, f"{output}: 2 files match, 0 changed, 0 missing\n")
    (tmp_path / "elsewhere").mkdir()
    moved = output.rename(tmp_path / "elsewhere" / "copy")
    assert verify(moved)[0] == 0
    assert verify(tmp_path)[0] == 1
    (moved / "0").write_text("tnetnoc")
    assert verify(moved) == (1, f"CHANGED  {moved / '0'}\n{moved}: 1 file matches, 1 changed, 0 missing\n")
    with pytest.raises(InputError, match="none: no such folder"):
        verify(tmp_path / "none")
