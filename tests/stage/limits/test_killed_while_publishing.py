"""Stages that end between the renames of their outputs: the same call goes on, to the same bytes."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checksums.md5_list import digest_folder
from data_prep.corpus.synthetic_corpus import CorpusSize, write_synthetic_corpus
from data_prep.corpus.validation_subset import write_validation_subset
from data_prep.token_files.merge_datasets import merge_datasets
from data_prep.tokenizing.tokenizer import train_tokenizer
from tests.support import write_dataset

Stage = Callable[[Path, Path], object]
"""Makes an output of the files in a folder."""
TINY = ModelSizes(layers=1, hidden=2, heads=1, vocab=6, positions=4)
STAGES: Mapping[str, Stage] = {
    "validation-subset": lambda inputs, output: write_validation_subset([inputs / "a.json"], output, count=3),
    "train-tokenizer": lambda inputs, output: train_tokenizer([inputs / "a.json"], output, vocab_size=300),
    "merge": lambda inputs, output: merge_datasets([inputs / "one", inputs / "two"], output),
    "synthetic-corpus": lambda _, output: write_synthetic_corpus(output, seed=1, size=CorpusSize(1, 2, 1)),
    "random-paxml": lambda _, output: write_random_paxml(output, seed=1, sizes=TINY),
}


class Killed(BaseException):
    """Stands for a kill: no clean-up that begins after it touches what has its name already."""


def published(folder: Path) -> dict[str, str]:
    return {name: md5 for name, md5 in digest_folder(folder).items() if not name.endswith(".manifest.json")}


def end_at_rename(number: int, patched: pytest.MonkeyPatch) -> None:
    """Renames up to that one work; it and those after it do not."""
    done = [0]

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def rename(*names: Path) -> object:
            if done[0] >= number:
                raise Killed
            done[0] += 1
            return real(*names)

        return rename

    patched.setattr(os, "replace", counted(os.replace))
    patched.setattr(Path, "rename", counted(Path.rename))


@pytest.mark.parametrize("name", STAGES)
def test_ended_at_each_rename_and_called_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, inputs = STAGES[name], tmp_path / "inputs"
    inputs.mkdir()
    texts = ["the quick brown fox " * 9, "jumps over \\u00e4 lazy dog", "pack my box", "with five dozen jugs"]
    (inputs / "a.json").write_text("".join(f'{{"text": "{text} {n}"}}\n' for n, text in enumerate(texts * 5)))
    for prefix in ("one", "two"):
        write_dataset(inputs / prefix, [3, 1, 2])
    (tmp_path / "whole").mkdir()
    make(inputs, tmp_path / "whole" / "out")
    expected = published(tmp_path / "whole")
    for ending_at in range(9):
        place = tmp_path / str(ending_at)
        place.mkdir()
        with monkeypatch.context() as patched:
            end_at_rename(ending_at, patched)
            try:
                make(inputs, place / "out")
                ended = False
            except Killed:
                ended = True
        make(inputs, place / "out")
        assert published(place) == expected, f"ended at rename {ending_at}"
        if not ended:
            break
    assert not ended
    assert ending_at >= 2
