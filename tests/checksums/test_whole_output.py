"""All contents against the manifest."""

import time
from pathlib import Path

import pytest

from checksums.list_commands import VerifyListCommand
from checksums.md5_list import digest_folder, format_list
from checksums.whole_output import require_whole
from stage.digest import md5_file, md5_text
from stage.errors import InputError
from stage.manifest import Record, record_of, write_manifest


def test_any_changed_byte_is_found(tmp_path: Path) -> None:
    output = tmp_path / "out"
    (output / "a").mkdir(parents=True)
    (output / "a" / "0").write_bytes(b"12345")
    with pytest.raises(InputError, match=r"no out\.manifest\.json beside it"):
        require_whole(output)
    made = [record_of(output, "out", md5_text(format_list(digest_folder(output))))]
    write_manifest(output, stage="x", options={}, inputs=[], outputs=made, packages=[], started=time.monotonic())
    require_whole(output)
    (output / "a" / "0").write_bytes(b"12346")
    with pytest.raises(InputError, match=r"out: MD5 .*, but out\.manifest\.json says"):
        require_whole(output)
    (output / "a" / "0").write_bytes(b"1234")
    with pytest.raises(InputError, match="1 files of 4 bytes"):
        require_whole(output)


def test_verify_reads_manifests_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a dataset, whose two files are named, and of a folder, which is one line."""
    paths = [tmp_path / "x.bin", tmp_path / "x.idx", tmp_path / "folder"]
    for path in paths[:2]:
        path.write_text(path.name)
    paths[2].mkdir()
    (paths[2] / "file").write_text("content")
    md5s = [md5_file(paths[0]), md5_file(paths[1]), md5_text(format_list(digest_folder(paths[2])))]
    records = [record_of(path, path.name, md5) for path, md5 in zip(paths, md5s, strict=True)]

    def verify(name: str) -> tuple[int, list[str]]:
        status = VerifyListCommand(tmp_path, tmp_path / f"{name}.manifest.json").run()
        return status, capsys.readouterr().out.splitlines()

    write_manifest(
        tmp_path / "x", stage="s", options={}, inputs=[], outputs=records, packages=[], started=time.monotonic()
    )
    assert verify("x") == (0, [f"{tmp_path}: 3 files match, 0 changed, 0 missing"])
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
        write_manifest(tmp_path / "b", stage="s", options={}, inputs=[], outputs=bad, packages=[], started=0.0)
        with pytest.raises(InputError, match="has no MD5 of"):
            verify("b")
