"""Commands about datasets: results as JSON, options out of range."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support import assert_refused, command, write_dataset


def test_samples_as_json(corpus_tokenizer: Path, tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [30, 11, 60])
    words = ["--data-path", tmp_path / "x", "--seq-length", 8, "--num-samples", 4, "--seed", 1]
    done = command("data_prep", "samples", *words, "--output", tmp_path / "s.npy", "--documents", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["shape"] == [4, 8]
    assert len(found["documents"]) == 4
    assert "texts" not in found
    assert np.load(tmp_path / "s.npy").shape == (4, 8)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"--seq-length": 0}, "--seq-length 0: expected 1 to "),
        ({"--seq-length": -5}, "--seq-length -5: expected 1 to "),
        ({"--seq-length": 1 << 60}, "--seq-length 1152921504606846976: expected 1 to "),
        ({"--seed": -1}, "--seed -1: expected 0 to "),
        ({"--seed": 1 << 32}, "--seed 4294967296: expected 0 to "),
        ({"--num-samples": -2}, "--num-samples -2: expected 0 or more"),
        ({"--num-samples": 1 << 50}, "more than the index can number in 32 bits"),
        ({"--first": -1}, "--first -1: expected 0 or more"),
        ({"--count": -1}, "--count -1: expected 0 or more"),
        ({"--first": 10**15}, "the data path has samples 0 to "),
        ({"--count": 10**15}, "the data path has samples 0 to "),
        ({"--output": "OUT/x.bin"}, "is not a .npy file"),
        ({"--output": "OUT/x.idx"}, "is not a .npy file"),
    ],
)
def test_samples_refuses(change: dict[str, object], complaint: str, tmp_path: Path) -> None:
    tokens = write_dataset(tmp_path / "x", [30, 11, 60])
    usual = {"--data-path": tmp_path / "x", "--seq-length": 8, "--num-samples": 4, "--seed": 1, "--output": "OUT/s.npy"}
    words = [str(word).replace("OUT", str(tmp_path)) for pair in (usual | change).items() for word in pair]
    assert_refused(command("data_prep", "samples", *words), complaint)
    assert not (tmp_path / "s.npy").exists()
    assert len(tokens) == 101
