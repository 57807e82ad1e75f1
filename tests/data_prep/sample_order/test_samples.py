"""samples: the windows as a file, as text and as JSON; options out of range."""

import json
from pathlib import Path

import numpy as np
import pytest

from data_prep.preprocessing.preprocess import preprocess
from tests.support import assert_refused, command, write_dataset


def test_samples_are_the_windows_training_sees(tmp_path: Path) -> None:
    tokens = {name: write_dataset(tmp_path / name, [30, 11, 60], seed=seed) for seed, name in enumerate("xy")}
    data = ["--data-path", "0.5", tmp_path / "x", "0.5", tmp_path / "y", "--seq-length", 8]
    arguments = [*data, "--num-samples", 20, "--seed", 9, "--first", 3, "--count", 4, "--output", tmp_path / "s.npy"]
    done = command("data_prep", "samples", *arguments)
    assert done.returncode == 0, done.stderr
    rows = np.load(tmp_path / "s.npy")
    assert (rows.dtype, rows.shape) == (np.int64, (4, 8))
    order = np.arange(12, dtype=np.uint32)
    np.random.RandomState(9).shuffle(order)
    for row, (name, item) in zip(rows, (("y", 1), ("x", 2), ("y", 2), ("x", 3)), strict=True):
        np.testing.assert_array_equal(row, tokens[name][8 * order[item] : 8 * order[item] + 8])


def test_documents_of_a_sample_are_told(tmp_path: Path) -> None:
    tokens = {name: write_dataset(tmp_path / name, [30, 11, 60], seed=seed) for seed, name in enumerate("xy")}
    data = ["--data-path", "0.5", tmp_path / "x", "0.5", tmp_path / "y", "--seq-length", 16]
    arguments = [*data, "--num-samples", 12, "--seed", 9, "--output", tmp_path / "s.npy", "--documents"]
    done = command("data_prep", "samples", *arguments)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    assert (len(lines), last) == (12, f"{tmp_path / 's.npy'}: int64 [12, 16]")
    starts = {0: 0, 1: 30, 2: 41}
    for number, (line, row) in enumerate(zip(lines, np.load(tmp_path / "s.npy"), strict=True)):
        sample, _, parts = line.partition(": ")
        assert sample == f"sample {number}"
        read: list[int] = []
        for part in parts.split("; "):
            prefix, _, document, _, begin, _, end = part.split()
            first = starts[int(document)]
            read += tokens[Path(prefix).name][first + int(begin) : first + int(end) + 1].tolist()
        assert read == row.tolist()
    assert any("; " in line for line in lines)
    found = json.loads(command("data_prep", "samples", *arguments, "--json").stdout)
    assert (found["shape"], len(found["documents"]), "texts" in found) == ([12, 16], 12, False)


def test_samples_of_an_evaluation_are_padded(tmp_path: Path) -> None:
    tokens = write_dataset(tmp_path / "x", [30])
    arguments = ["--data-path", tmp_path / "x", "--seq-length", 8, "--num-samples", -1, "--seed", 1]
    for more, width in (([], 8), (["--plus-one"], 9)):
        output = tmp_path / f"{width}.npy"
        done = command("data_prep", "samples", *arguments, *more, "--output", output)
        assert done.returncode == 0, done.stderr
        rows = np.load(output)
        assert rows.shape == (4, width)
        (short,) = [row for row in rows if -1 in row]
        np.testing.assert_array_equal(short[:6], tokens[24:])
        assert (short[6:] == -1).all()


def test_samples_are_printed_as_text(corpus_tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"text": "tree house river"}\n{"text": "stone"}\n')
    preprocess([tmp_path / "x.json"], corpus_tokenizer, tmp_path / "x", workers=1)
    arguments = ["--data-path", tmp_path / "x", "--seq-length", 100, "--num-samples", -1, "--seed", 1]
    arguments += ["--output", tmp_path / "s.npy", "--tokenizer"]
    assert_refused(command("data_prep", "samples", *arguments, tmp_path / "x.json"), "not a tokenizer.json")
    assert not (tmp_path / "s.npy").exists()
    done = command("data_prep", "samples", *arguments, corpus_tokenizer)
    assert done.stdout.splitlines()[-1] == "tree house river stone"


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
        ({"--benchmark": "rehearsal", "--step": 9021, "--num-samples": 208_333}, "--step 9021: expected 1 to 9020"),
        ({"--benchmark": "rehearsal", "--first": 0, "--count": 4}, ", but the model's vocabulary has 1000 (sample 0)"),
        ({"--output": "OUT/x.bin"}, "is not a .npy file"),
        ({"--output": "OUT/x.idx"}, "is not a .npy file"),
    ],
)
def test_samples_refuses(change: dict[str, object], complaint: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [30, 11, 60])
    usual = {"--data-path": tmp_path / "x", "--seq-length": 8, "--num-samples": 4, "--seed": 1, "--output": "OUT/s.npy"}
    words = [str(word).replace("OUT", str(tmp_path)) for pair in (usual | change).items() for word in pair]
    assert_refused(command("data_prep", "samples", *words), complaint)
    assert not (tmp_path / "s.npy").exists()
    if {"--output", "--step"} & change.keys() or -1 in change.values():  # before minutes of ordering
        assert not (tmp_path / "x.index").exists()
