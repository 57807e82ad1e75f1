"""Blends as files: found datasets, their weights, and the same samples as by hand."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from data_prep.sample_order.blend_file import discover, read_blend
from data_prep.sample_order.token_windows import open_token_windows
from foundation.errors import InputError
from tests.support import assert_refused, command, write_dataset

SIZES = {"a": [30, 11, 60], "deep/b": [7] * 30, "deep/er/c.v1": [400]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, (name, sizes) in enumerate(SIZES.items()):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        write_dataset(tmp_path / "data" / name, sizes, seed=number)
    (tmp_path / "data" / "lonely.idx").write_bytes(b"without its tokens")
    return tmp_path / "data"


def blend(folder: Path, *more: object) -> dict[str, Any]:
    output = folder / "x.blend.json"
    done = command("data_prep", "blend", "--input", folder, "--output", output, "--json", *more)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(output.read_text())
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_datasets_are_found(folder: Path) -> None:
    assert discover([folder]) == [folder / name for name in SIZES]
    assert discover([folder / "deep" / "b", folder]) == [folder / name for name in ("deep/b", "a", "deep/er/c.v1")]
    with pytest.raises(InputError, match="no dataset there"):
        discover([folder, folder / "none"])


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ([], [101 / 711, 210 / 711, 400 / 711]),
        (["--weights", "equal"], [1 / 3] * 3),
        (["--temperature", 2], [x / (101**0.5 + 210**0.5 + 20) for x in (101**0.5, 210**0.5, 20)]),
        (["--temperature", 1000], [1 / 3] * 3),
    ],
)
def test_weights(options: list[object], weights: list[float], folder: Path) -> None:
    found = blend(folder, *options)
    assert [dataset["weight"] for dataset in found["datasets"]] == pytest.approx(weights, rel=3e-3)
    assert [dataset["tokens"] for dataset in found["datasets"]] == [101, 210, 400]
    assert [dataset["prefix"] for dataset in found["datasets"]] == list(SIZES)


def test_a_blend_moves_with_its_datasets(folder: Path, tmp_path: Path) -> None:
    blend(folder)
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    assert [part.prefix for part in read_blend(moved / "x.blend.json")] == [str(moved / name) for name in SIZES]
    done = command("data_prep", "inspect", "--data-path", moved / "x.blend.json")
    assert done.returncode == 0, done.stderr
    assert "3 datasets, 711 tokens" in done.stdout


def test_another_dataset_in_its_place_is_refused(folder: Path) -> None:
    blend(folder)
    path = folder / "x.blend.json"
    write_dataset(folder / "a", [30, 60, 11])  # as many tokens
    assert_refused(command("data_prep", "inspect", "--data-path", path), "not the index that", status=1)
    write_dataset(folder / "a", [30, 61, 11])
    with pytest.raises(InputError, match=r"102 tokens, .* was made for 101"):
        open_token_windows([str(path)], sequence_length=8, num_samples=4, seed=1)


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", '{"blend": 2, "datasets": []}', '{"blend": 1, "datasets": []}', '{"blend": 1, "datasets": 3}',
     '{"blend": 1, "datasets": [{"prefix": "a"}]}', "[" * 100_000,
     '{"blend": 1, "datasets": [{"prefix": "a", "weight": -1, "tokens": 5, "idx_md5": ""}]}',
     '{"blend": 1, "datasets": [{"prefix": "a", "weight": NaN, "tokens": 5, "idx_md5": ""}]}'],
)  # fmt: skip
def test_files_that_are_no_blend(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.blend.json").write_text(content)
    with pytest.raises(InputError, match="not a blend"):
        read_blend(tmp_path / "x.blend.json")


def test_options_of_blend_that_are_refused(folder: Path) -> None:
    words = ["blend", "--input", folder, "--output"]
    for more, complaint in (
        ([folder / "x.json"], "expected a name that ends in .blend.json"),
        ([folder / "x.blend.json", "--temperature", 0], "--temperature 0"),
    ):
        assert_refused(command("data_prep", *words, *more), complaint)
