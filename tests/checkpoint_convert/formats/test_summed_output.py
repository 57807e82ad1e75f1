"""Conversions that are shared, changed under or refused: the same bytes come out, or nothing, and no work of others is
touched. The mechanism itself, with kills, is tested in tests/stage."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.summed_output import Produced
from checksums.folder_sums import digest_folder
from foundation.errors import InputError
from foundation.file_formats.md5_list import read_list
from foundation.outputs.manifest import manifest_path, read_manifest
from foundation.outputs.resumable_output import ResumableOutput
from foundation.outputs.shards import Shard
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import GIB

SIZES = ModelSizes(layers=1, hidden=5, heads=1, vocab=10, positions=4)
"""8 divides none of them, which makes few chunks."""
BIAS = "mdl_vars.params.lm.final_ln.bias"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paxml") / "paxml"
    write_random_paxml(folder, seed=1, sizes=SIZES)
    return folder


@pytest.fixture
def paxml(made: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return shutil.copytree(made, tmp_path / "paxml")


@pytest.fixture(scope="module")
def expected(made: Path) -> dict[str, str]:
    convert(made, made.with_name("expected"))
    return published(made.with_name("expected"))


def convert(
    source: Path, output: Path, shard: str = "", *, dtype: str = "bf16", zeros: bool = False, force: bool = False
) -> Produced | None:
    share = Shard(*map(int, shard.split("/"))) if shard else None
    return paxml_to_megatron(
        source,
        output,
        dtype=dtype,
        workers=2,
        memory_limit=GIB,
        missing_chunks_are_zeros=zeros,
        shard=share,
        force=force,
    )


def published(output: Path) -> dict[str, str]:
    """What lies under the output's name, which its list says, too; nothing else of the conversion is left."""
    found = digest_folder(output)
    assert found == read_list(output.with_name(f"{output.name}.md5"))
    assert not list(output.parent.glob("*.partial"))
    return found


def chunk_of(folder: Path) -> Path:
    return min(path for path in folder.iterdir() if path.name != ".zarray")


def rewrite(path: Path) -> None:
    """Change a byte that gzip does not look at, its own time, and set the file's time back."""
    before, content = path.stat(), bytearray(path.read_bytes())
    content[4] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_shards_are_joined_to_the_same_bytes(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    shards = [convert(paxml, tmp_path / "out", shard) for shard in ("2/3", "0/3")]  # the last is left to the join
    assert not (tmp_path / "out").exists()
    pieces = [path for path in (tmp_path / "out.partial" / "pieces").rglob("*") if path.is_file()]
    before = pieces[0].stat()
    pieces[0].write_bytes(bytes(before.st_size))  # as after a crash of a machine
    os.utime(pieces[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    (pieces[0].parent / "notes").write_text("mine")
    paxml.rename(tmp_path / "moved")
    (tmp_path / "moved" / BIAS / "0").chmod(0o400)
    (tmp_path / "link").hardlink_to(chunk_of(tmp_path / "moved" / BIAS))
    with pytest.raises(InputError, match="notes: no file of this output; move it away"):
        convert(tmp_path / "moved", tmp_path / "out")
    (pieces[0].parent / "notes").unlink()
    joined = convert(tmp_path / "moved", tmp_path / "out")
    assert joined is not None
    assert joined.resumed_files >= sum(shard.files for shard in shards if shard) - 1
    assert published(tmp_path / "out") == expected
    assert convert(tmp_path / "moved", tmp_path / "out", "1/3") is None  # it comes too late


CHANGES: dict[str, tuple[Callable[[Path], object], dict[str, object], str]] = {
    "dtype": (lambda paxml: None, {"dtype": "fp32"}, "dtype is fp32, not bf16"),
    "zeros": (lambda paxml: None, {"zeros": True}, "missing_chunks_are_zeros is True, not False"),
    "chunk": (lambda paxml: rewrite(chunk_of(paxml / BIAS)), {}, "the content of"),
}


def test_what_was_begun_for_another_output_is_kept(paxml: Path, tmp_path: Path) -> None:
    """A shard of another dtype once removed the work of all others without a word; a join took what it found."""
    convert(paxml, tmp_path / "out", "0/2")
    before = digest_folder(tmp_path / "out.partial" / "pieces")
    for change_source, options, says in CHANGES.values():
        change_source(paxml)
        for shard in ("1/2", ""):
            with pytest.raises(InputError, match=f"begun for another output: {says}"):
                convert(paxml, tmp_path / "out", shard, **options)  # type: ignore[arg-type]
    assert digest_folder(tmp_path / "out.partial" / "pieces") == before
    assert not (tmp_path / "out").exists()
    done = convert(paxml, tmp_path / "out", force=True)
    assert done is not None
    assert done.resumed_files == 0
    assert convert(paxml, tmp_path / "out") is None
    with pytest.raises(InputError, match="exists and was made otherwise"):
        convert(paxml, tmp_path / "out", dtype="fp32")


@pytest.mark.parametrize("when", ["read", "end", "gone"])
def test_a_source_that_changes_meanwhile_is_not_published(
    when: str, paxml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if when == "end":
        monkeypatch.setattr(ResumableOutput, "reload", lambda work: rewrite(chunk_of(paxml / BIAS)))
    else:
        real, chunk = LocalFiles.source, chunk_of(paxml / "opt_states_0.no_prefix_2.v.params.lm.final_ln.bias")

        def identify_and_change(files: LocalFiles) -> object:
            found = real(files)
            chunk.unlink() if when == "gone" else chunk.write_bytes(chunk.read_bytes() + b"x")
            return found

        monkeypatch.setattr(LocalFiles, "source", identify_and_change)
    with pytest.raises(InputError, match="is missing" if when == "gone" else "changed (while|meanwhile)|input changed"):
        convert(paxml, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.md5").exists()


def test_bad_counters_are_told_before_anything_is_converted(paxml: Path, tmp_path: Path) -> None:
    (paxml / "opt_states_0.no_prefix_2.count" / "0").write_bytes(np.int32(3999).tobytes())
    with pytest.raises(InputError, match="counters of the optimizer's steps differ"):
        convert(paxml, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["paxml"]


def test_zero_chunks_are_counted(paxml: Path, tmp_path: Path) -> None:
    chunk_of(paxml / BIAS).unlink()
    words = ["paxml-to-megatron", "--input", paxml, "--output", tmp_path / "out", "--dtype", "fp32"]
    run(*words).refused("is missing; fetch it again, or pass --missing-chunks-are-zeros")
    done = run(*words, "--missing-chunks-are-zeros")
    assert (done.returncode, "1 input chunks had no file and are zeros" in done.stdout) == (0, True)
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert manifest.facts["zero_chunks"] == 1
    metadata = paxml / BIAS / ".zarray"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "fill_value": 1.0}))
    run(*words, "--missing-chunks-are-zeros", "--force").refused("its fill_value says that it stands for something")


def test_relative_paths(paxml: Path, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    convert(Path("../paxml"), Path("../out"))
    assert published(tmp_path / "out") == expected


def test_too_little_room_is_told_before_anything_is_written(
    paxml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.statvfs(tmp_path)
    nearly_full = os.statvfs_result((*found[:4], 1, *found[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: nearly_full)
    with pytest.raises(InputError, match=r"bytes are still to be written, and the disk has 4,096"):
        convert(paxml, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["paxml"]


def test_a_source_that_is_not_what_its_manifest_says_is_refused(made: Path, paxml: Path, tmp_path: Path) -> None:
    shutil.copy(manifest_path(made), manifest_path(paxml))
    chunk_of(paxml / BIAS).write_bytes(b"longer")
    words = ["paxml-to-megatron", "--input", paxml, "--output", tmp_path / "out", "--dtype", "fp32"]
    run(*words).refused("paxml.manifest.json says")
