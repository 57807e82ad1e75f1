"""Joining: what may be replaced, and what is not published."""

import shutil
from pathlib import Path

import pytest

from data_prep.preprocessing.preprocess import preprocess
from data_prep.token_files.indexed_dataset import bin_path, idx_path
from stage.claims.claim_file import Claim
from stage.errors import InputError
from stage.manifest import manifest_path
from tests.data_prep.shards import Sums, sums


@pytest.mark.parametrize("content", ["", '{"text": ""}\n{"text": " \\n "}\n'])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_dataset_without_documents_is_not_published(
    content: str, workers: int, tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match="no document with a token in 1 files"):
        preprocess([tmp_path / "x.json"], tokenizer, tmp_path / "out" / "x", workers=workers)
    assert {path.name for path in (tmp_path / "out").iterdir()} <= {"x.parts"}


@pytest.mark.parametrize("output", ["c4.bin", "c4.idx", "c4.manifest.json", "c4.skipped.txt", "c4.parts/x.json"])
def test_an_input_is_never_an_output(output: str, shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    source = tmp_path / "data" / output
    source.parent.mkdir(parents=True)
    source.write_text('{"text": "tree"}\n')
    linked = tmp_path / "link"
    linked.symlink_to(tmp_path / "data")
    for prefix in (tmp_path / "data" / "c4", linked / "c4"):
        for force in (False, True):
            with pytest.raises(InputError, match="holds the input"):
                preprocess([source], tokenizer, prefix, workers=1, force=force)
    model = tmp_path / "data" / "c4.idx"
    shutil.copy(tokenizer, model)
    with pytest.raises(InputError, match=r"c4.idx: holds the input"):
        preprocess(shards[:1], model, tmp_path / "data" / "c4", workers=1, force=True)
    assert source.read_bytes() in (b'{"text": "tree"}\n', tokenizer.read_bytes())


def test_force_replaces_only_what_was_made_here(
    shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path
) -> None:
    prefix = tmp_path / "x"
    preprocess(shards[:1], tokenizer, prefix, workers=1)
    manifest = manifest_path(prefix).read_bytes()
    for change in (
        lambda: manifest_path(prefix).unlink(),
        lambda: manifest_path(prefix).write_bytes(manifest.replace(b'"preprocess"', b'"train"')),
        lambda: manifest_path(prefix).write_bytes(b"{}"),
        lambda: prefix.with_name("x.skipped.txt").write_text("mine"),
    ):
        change()
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(InputError, match=r"remove it yourself"):
            preprocess(shards, tokenizer, prefix, workers=1, force=True)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
        manifest_path(prefix).write_bytes(manifest)
    prefix.with_name("x.skipped.txt").unlink()
    preprocess(shards, tokenizer, prefix, workers=1, force=True)
    assert sums(prefix) == expected


def test_who_lost_its_claim_publishes_nothing(
    shards: list[Path], tokenizer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lost(_: Claim) -> None:
        raise InputError("this work was taken over")

    monkeypatch.setattr(Claim, "require_held", lost)
    with pytest.raises(InputError, match="taken over"):
        preprocess(shards[:1], tokenizer, tmp_path / "x", workers=1)
    assert not bin_path(tmp_path / "x").exists()
    assert not idx_path(tmp_path / "x").exists()
