"""A disk that is too small, or full: what it says, and that finished work stays."""

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.token_part import PartMaker
from foundation.errors import InputError
from tests.data_prep.shards import write_shard


def test_too_little_space_is_told_and_refused_before_the_join(
    corpus_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shard, usage = write_shard(tmp_path / "0.json.gz", 50, seed=1), shutil.disk_usage
    with monkeypatch.context() as small:
        small.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
        with pytest.raises(InputError, match=r"100 B are free, and the dataset takes .* which only joins them"):
            preprocess([shard], corpus_tokenizer, tmp_path / "x", workers=1)
    assert "are free; the dataset and its parts take about " in capsys.readouterr().err
    assert shutil.disk_usage is usage
    monkeypatch.setattr(PartMaker, "make", None)  # all is made
    assert preprocess([shard], corpus_tokenizer, tmp_path / "x", workers=1) is not None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_what_stays_and_what_to_do(
    number: int, corpus_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, "No space left on device", "some/file/within")

    shards = [write_shard(tmp_path / f"{place}.json.gz", 20, seed=place) for place in range(2)]
    monkeypatch.setattr(PartMaker, "_write", full)
    with pytest.raises(InputError, match=r"No space left .*; finished parts stay in x\.partial: free some space, then"):
        preprocess(shards, corpus_tokenizer, tmp_path / "x", workers=1)
