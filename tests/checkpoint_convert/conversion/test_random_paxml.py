"""Random checkpoints: the same bytes of the same seed and sizes."""

import resource
from pathlib import Path

import pytest

from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checksums.md5_list import digest_folder
from stage.errors import InputError
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import read
from tests.forked import run_forked, run_module
from tests.support import assert_refused


def test_random_checkpoint_depends_on_the_seed_alone(tmp_path: Path) -> None:
    sizes = ["--layers", 2, "--hidden", 16, "--heads", 2, "--vocab", 64]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        done = run("random-paxml", "--output", tmp_path / name, "--seed", seed, *sizes)
        assert done.returncode == 0, done.stderr
    assert digest_folder(tmp_path / "a") == digest_folder(tmp_path / "b") != digest_folder(tmp_path / "c")
    moments = [
        path for path in (tmp_path / "a").iterdir() if path.name.startswith("opt_states_0") and "_2.v." in path.name
    ]
    assert len(moments) == 16
    assert all((read(path) >= 0).all() for path in moments)


def test_what_is_there_is_made_again_by_force_only(tmp_path: Path) -> None:
    sizes = ModelSizes(layers=1, hidden=6, heads=2, vocab=10, positions=5)
    assert write_random_paxml(tmp_path / "a", seed=1, sizes=sizes)
    assert not write_random_paxml(tmp_path / "a", seed=1, sizes=sizes)
    with pytest.raises(InputError, match="made otherwise"):
        write_random_paxml(tmp_path / "a", seed=2, sizes=sizes)
    before = digest_folder(tmp_path / "a")
    assert write_random_paxml(tmp_path / "a", seed=2, sizes=sizes, force=True)
    assert digest_folder(tmp_path / "a") != before


def test_heads_have_to_divide_the_width() -> None:
    with pytest.raises(InputError, match="3 heads do not divide the hidden size 16"):
        ModelSizes(layers=1, hidden=16, heads=3, vocab=10).by_axis()


def with_small_files(words: list[str]) -> None:
    """The command where no file can have more than 2,000 bytes, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    run_module(words)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    sizes = ["--layers", "1", "--hidden", "6", "--heads", "2", "--vocab", "10", "--positions", "2000"]
    words = ["checkpoint_convert", "random-paxml", "--output", str(tmp_path / "p"), "--seed", "1", *sizes]
    assert_refused(run_forked(with_small_files, words, folder=tmp_path, timeout=100), "cannot be written")
    assert list(tmp_path.iterdir()) == []
