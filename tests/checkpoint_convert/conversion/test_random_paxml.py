"""Random checkpoints: the same bytes of the same seed and sizes."""

import json
import resource
from pathlib import Path

from checksums.folder_sums import digest_folder
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import read
from tests.forked import run_forked, run_module
from tests.support import assert_refused

SIZES = ["--layers", 1, "--hidden", 6, "--heads", 2, "--vocab", 10, "--positions", 2000]


def test_a_checkpoint_depends_on_the_seed_alone(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        done = run("random-paxml", "--output", tmp_path / name, "--seed", seed, *SIZES)
        assert (done.returncode, done.stdout) == (0, f"{tmp_path / name}: 1 layer\n")
    assert digest_folder(tmp_path / "a") == digest_folder(tmp_path / "b") != digest_folder(tmp_path / "c")
    moments = list((tmp_path / "a").glob("opt_states_0*_2.v.*"))
    assert len(moments) == 16
    assert all((read(path) >= 0).all() for path in moments)
    words = ["random-paxml", "--output", tmp_path / "a", *SIZES]
    told = json.loads(run(*words, "--seed", 1, "--json").stdout)
    assert told == {"already_made": True, "layers": 1, "hidden": 6, "heads": 2, "vocab": 10, "positions": 2000}
    run(*words, "--seed", 2).refused("made otherwise")
    assert run(*words, "--seed", 2, "--force").returncode == 0
    assert digest_folder(tmp_path / "a") == digest_folder(tmp_path / "c")
    run(*words, "--seed", 1, "--heads", 4).refused("--heads 4: does not divide --hidden 6; change one of them")


def with_small_files(words: list[str]) -> None:
    """The command where no file can have more than 2,000 bytes, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    run_module(words)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    words = ["checkpoint_convert", "random-paxml", "--output", tmp_path / "p", "--seed", 1, *SIZES]
    assert_refused(
        run_forked(with_small_files, [str(word) for word in words], folder=tmp_path, timeout=100), "cannot be written"
    )
    assert list(tmp_path.iterdir()) == []
