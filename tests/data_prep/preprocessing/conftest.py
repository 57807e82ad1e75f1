from pathlib import Path

import pytest

from data_prep.preprocessing.preprocess import preprocess
from data_prep.tokenizing.tokenizer import train_tokenizer
from tests.data_prep.shards import DOCUMENTS, Sums, sums, write_shard


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five files of English; only read."""
    folder = tmp_path_factory.mktemp("shards")
    return [write_shard(folder / f"{number}.json.gz", DOCUMENTS, seed=number) for number in range(5)]


@pytest.fixture(scope="session")
def tokenizer(shards: list[Path]) -> Path:
    path = shards[0].parent / "tokenizer.model"
    train_tokenizer(shards[:1], path, vocab_size=500)
    return path


@pytest.fixture(scope="session")
def expected(shards: list[Path], tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Sums:
    """Sums of the dataset of all ``shards``, made by one process."""
    prefix = tmp_path_factory.mktemp("expected") / "x"
    preprocess(shards, tokenizer, prefix, workers=1)
    return sums(prefix)
