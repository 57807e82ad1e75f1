"""create and verify as commands."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoint_convert.formats.step_files import common_files
from checksums.folder_sums import compare_lists, digest_folder
from foundation.file_formats.md5_list import format_list, read_list
from tests.checkpoint_convert.in_process import run

REPOSITORY = Path(__file__).resolve().parents[2]


def test_create_then_verify(folder: Path, tmp_path: Path) -> None:
    manifest = folder / "inside.md5"
    assert run("create", folder, "--output", manifest).stdout == f"{manifest}: 5 files\n"
    told = run("create", folder, "--output", manifest, "--json").stdout
    assert json.loads(told) == {"output": str(manifest), "files": 5}
    done = run("verify", folder, "--manifest", manifest)
    assert (done.returncode, "5 files match, 0 changed, 0 missing\n" in done.stdout) == (0, True)


def test_create_replaces_nothing_but_a_list(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert run("create", folder, "--output", tmp_path / "empty").returncode == 0
    (tmp_path / "notes").write_text("mine")
    run("create", folder, "--output", tmp_path / "notes").refused("notes: exists and is not a list of MD5 sums")
    run("create", folder, "--output", tmp_path).refused("exists and is not a list of MD5 sums")
    assert (tmp_path / "notes").read_text() == "mine"


def test_verify_names_what_differs(folder: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "list.md5"
    manifest.write_text(format_list(digest_folder(folder)))
    extra_names = [*(f"notes{number}" for number in range(6)), "x/y", "x/z"]
    (folder / "x").mkdir()
    for name in extra_names:
        (folder / name).touch()
    holds, names = run("verify", folder, "--manifest", manifest), ", ".join(extra_names[:5])
    assert holds.stdout == f"{folder}: 5 files match, 0 changed, 0 missing; 8 not in the list:\n  {names}, …\n"
    (folder / "b.bin").write_bytes(b"b" * 99 + b"c")
    (folder / "A.bin").unlink()
    done = run("verify", folder, "--manifest", manifest)
    assert done.returncode == 1
    assert f"CHANGED  {folder}/b.bin" in done.stdout
    assert f"MISSING  {folder}/A.bin" in done.stdout
    assert f"EXTRA  {folder}/notes4\nEXTRA  and 3 more; --json names all\n" in done.stdout
    assert "3 files match, 1 changed, 1 missing; 8 not in the list\n" in done.stdout
    found = json.loads(run("verify", folder, "--manifest", manifest, "--json").stdout)
    assert (found["changed"], found["missing"], found["extra"]) == (
        ["b.bin"],
        ["A.bin"],
        extra_names,
    )


@pytest.mark.parametrize("place", ["release/data", "{folder}"])
def test_paths_that_begin_with_other_folders_are_understood(place: str, folder: Path, tmp_path: Path) -> None:
    place = place.format(folder=folder)
    digests = {f"{place}/{name}": digest for name, digest in digest_folder(folder).items()}
    (tmp_path / "list").write_text(format_list(digests))
    done = run("verify", folder, "--manifest", tmp_path / "list")
    assert (done.returncode, "5 files match, 0 changed, 0 missing" in done.stdout) == (0, True)
    assert done.stderr == f"{tmp_path}/list: its paths begin with {place}/, read as {folder}/\n"
    (folder / "b.bin").unlink()
    done = run("verify", folder, "--manifest", tmp_path / "list")
    assert (done.returncode, f"MISSING  {folder}/b.bin\n" in done.stdout) == (1, True)


def test_bad_usage_is_status_2(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(f"{'0' * 32}  a\n")
    run("verify", tmp_path / "none", "--manifest", tmp_path / "list").refused("no such folder")
    run("verify", tmp_path, "--manifest", tmp_path / "none").refused("none")


def test_small_files_of_a_megatron_checkpoint_may_differ_but_not_be_missing(tmp_path: Path) -> None:
    folder, manifest = tmp_path / "checkpoint", tmp_path / "list.md5"
    (folder / "language_model.encoder.final_layernorm.bias").mkdir(parents=True)
    (folder / "language_model.encoder.final_layernorm.bias" / "0").write_text("as it was")
    for name, content in common_files("fp32").items():
        (folder / name).write_bytes(content)
    manifest.write_text(format_list(digest_folder(folder)))
    (folder / "metadata.json").write_text('{"sharded_backend": "zarr"}\n')
    done = run("verify", folder, "--manifest", manifest)
    assert done.returncode == 0, done.stdout
    assert f"MAY DIFFER  {folder}/metadata.json\n" in done.stdout
    assert "2 files match, 0 changed, 0 missing, 1 may differ\n" in done.stdout
    for step in (3999, 192):  # a wrong step was told as MAY DIFFER, with status 0
        (folder / "common.pt").write_bytes(common_files("fp32", step)["common.pt"])
        assert run("verify", folder, "--manifest", manifest).returncode == 1
        assert compare_lists(folder, read_list(manifest)).changed == ["common.pt"]
    (folder / "common.pt").write_bytes(common_files("bf16")["common.pt"])  # nested as a BF16 checkpoint's
    assert compare_lists(folder, read_list(manifest)).changed == ["common.pt"]
    (folder / "common.pt").unlink()
    assert not compare_lists(folder, read_list(manifest)).holds


def fresh(*words: object) -> "subprocess.CompletedProcess[str]":
    """Run a command in an interpreter of its own."""
    command = [sys.executable, "-m", "checksums", *map(str, words)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)


def test_names_that_are_no_text_are_listed_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The locale is one that knows less than the names."""
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    folder, manifest = tmp_path / "data", tmp_path / "list"
    folder.mkdir()
    names = [b"\xff\xfe", "ä€".encode(), b"back\\slash", b"line\nend", b" space "]
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(name)
    done = fresh("create", folder, "--output", manifest)
    assert (done.returncode, done.stderr) == (0, "")
    assert run("verify", folder, "--manifest", manifest).returncode == 0
    Path(os.fsdecode(os.path.join(os.fsencode(folder), names[0]))).write_bytes(b"")
    done = fresh("verify", folder, "--manifest", manifest)
    assert (done.returncode, "4 files match, 1 changed" in done.stdout, done.stderr) == (1, True, "")
