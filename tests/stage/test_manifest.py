"""Manifests: what was made of what, and whether that still holds."""

import os
import time
from pathlib import Path

import pytest

from stage.digest import md5_file
from stage.errors import InputError
from stage.manifest import Record, is_current, read_manifest, record_of, require_intact, write_manifest


def _write_output(folder: Path) -> tuple[Path, Path]:
    source, output = folder / "in.txt", folder / "out.txt"
    source.write_text("in")
    output.write_text("out")
    write_manifest(
        output,
        stage="copy",
        options={"mode": 1},
        inputs=[record_of(source, str(source), "13b5bfe96f3e2fe411c9f66f4a582adf")],
        outputs=[record_of(output, "out.txt", None)],
        packages=["numpy"],
        started=time.monotonic(),
    )
    return source, output


def test_manifest_says_what_was_made_of_what(tmp_path: Path) -> None:
    source, output = _write_output(tmp_path)
    manifest = read_manifest(output)
    assert manifest is not None
    assert manifest.inputs[0].name == str(source)
    assert manifest.outputs[0].bytes == 3
    assert "numpy" in manifest.versions
    assert is_current(output, stage="copy", options={"mode": 1}, inputs=[source])


def test_manifest_notices_other_options_inputs_and_outputs(tmp_path: Path) -> None:
    source, output = _write_output(tmp_path)
    assert not is_current(output, stage="copy", options={"mode": 2}, inputs=[source])
    assert not is_current(output, stage="copy", options={"mode": 1}, inputs=[output])
    assert not is_current(output, stage="copy", options={"mode": 1}, inputs=[source, source])
    os.utime(source, (1, 1))  # copied elsewhere and back: same contents
    assert is_current(output, stage="copy", options={"mode": 1}, inputs=[source])
    source.write_text("IN")
    assert not is_current(output, stage="copy", options={"mode": 1}, inputs=[source])
    output.write_text("truncated"[:2])
    with pytest.raises(InputError, match=r"out\.txt: 1 files of 2 bytes, but .* says 1 files of 3 bytes"):
        require_intact(output)
    output.unlink()
    with pytest.raises(InputError, match=r"out\.txt: missing"):
        require_intact(output)


def test_the_same_input_elsewhere_is_the_same(tmp_path: Path) -> None:
    source, output = _write_output(tmp_path)
    moved, other = tmp_path / "moved.txt", tmp_path / "other.txt"
    source.rename(moved)
    other.write_text("no")  # as many bytes
    assert is_current(output, stage="copy", options={"mode": 1}, inputs=[moved])
    assert not is_current(output, stage="copy", options={"mode": 1}, inputs=[other])


def test_small_files_are_compared_by_their_contents(tmp_path: Path) -> None:
    output = tmp_path / "model"
    output.write_text("out")
    made = [record_of(output, "model", md5_file(output))]
    write_manifest(output, stage="train", options={}, inputs=[], outputs=made, packages=[], started=time.monotonic())
    assert require_intact(output) is not None
    output.write_text("OUT")
    with pytest.raises(InputError, match=r"model: its MD5 is not that in model\.manifest\.json"):
        require_intact(output)


def test_damaged_manifest_is_named(tmp_path: Path) -> None:
    _, output = _write_output(tmp_path)
    (tmp_path / "out.txt.manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"out\.txt\.manifest\.json: not a manifest"):
        require_intact(output)
    assert require_intact(tmp_path / "never made") is None


def test_a_folder_is_one_record(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "sub" / "b").write_bytes(b"678")
    os.utime(tmp_path / "a", ns=(5, 5))
    os.utime(tmp_path / "sub" / "b", ns=(7, 7))
    assert record_of(tmp_path, "in", None) == Record("in", 2, 8, None, 7)
    assert record_of(tmp_path / "a", "a", "md5") == Record("a", 1, 5, "md5", 5)


def test_record_of_a_folder_counts_files_in_all_its_folders_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name, text in (("a", "1"), ("deep/b", "22"), ("deep/er/c", "333")):
        (tmp_path / name).write_text(text)
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "deep" / "pipe")
    found = record_of(tmp_path, "all", None)
    assert (found.files, found.bytes) == (4, 7)
    assert found.mtime_ns == max(path.stat().st_mtime_ns for path in tmp_path.rglob("?"))
