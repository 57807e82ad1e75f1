"""Damage to a run's files."""

from pathlib import Path

import numpy as np
import pytest

from benchmark.drills.damage import KINDS, damage_files, flip_bit
from benchmark.drills.faults import Damage, DamageKind
from data_prep.token_files.indexed_dataset import IndexedDataset, IndexedDatasetWriter


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for steps in (4, 8):
        folder = tmp_path / "checkpoints" / f"step_{steps:08d}"
        folder.mkdir(parents=True)
        (folder / "small").write_bytes(b"small")
        (folder / "__0_0.distcp").write_bytes(b"x" * 100)
    return tmp_path


def _damaged(kind: DamageKind, run_dir: Path) -> Path:
    damage_files(Damage(kind), run_dir, run_dir / "data")
    return run_dir / "checkpoints"


def test_flipped_and_cut_is_the_largest_file_of_the_newest(run_dir: Path) -> None:
    checkpoints = _damaged("flip newest", run_dir)
    assert (checkpoints / "step_00000008" / "__0_0.distcp").read_bytes() == b"x" * 50 + b"y" + b"x" * 49
    _damaged("cut newest", run_dir)
    assert (checkpoints / "step_00000008" / "__0_0.distcp").stat().st_size == 50
    assert (checkpoints / "step_00000004" / "__0_0.distcp").read_bytes() == b"x" * 100
    assert (checkpoints / "step_00000008" / "small").read_bytes() == b"small"


def test_deleted(run_dir: Path) -> None:
    assert [path.name for path in _damaged("delete newest", run_dir).iterdir()] == ["step_00000004"]
    assert not _damaged("delete all", run_dir).exists()


@pytest.mark.parametrize("kind", ["flip newest", "cut newest", "delete newest", "delete all"])
def test_nothing_to_damage(kind: DamageKind, tmp_path: Path) -> None:
    _damaged(kind, tmp_path)
    assert not (tmp_path / "checkpoints").exists()


def test_damaged_tokens_are_outside_the_vocabulary(tmp_path: Path) -> None:
    with IndexedDatasetWriter(tmp_path / "data", np.dtype("<u2")) as writer:
        writer.append(np.arange(6000) % 250, [6000])
    damage_files(Damage("flip data"), tmp_path, tmp_path / "data")
    tokens = IndexedDataset(tmp_path / "data").tokens(0, 0, 6000)
    assert (tokens[:4096] >= 250).all()
    assert (tokens[4096:] == np.arange(4096, 6000) % 250).all()


def test_one_bit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    flip_bit(tmp_path / "file", 1)
    assert (tmp_path / "file").read_bytes() == b"acc"


def test_every_kind_is_done() -> None:
    assert set(KINDS) == set(DamageKind.__args__)  # type: ignore[attr-defined]
