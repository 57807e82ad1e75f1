from pathlib import Path

import pytest

from data_prep.corpus import c4
from data_prep.preprocessing import worker_shares
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
    """Of all ``shards``, made by one process."""
    prefix = tmp_path_factory.mktemp("expected") / "x"
    preprocess(shards, tokenizer, prefix, workers=1)
    return sums(prefix)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks in small files, which several workers share; worker processes are forked from this one."""
    monkeypatch.setattr(c4, "BLOCK_BYTES", 3000)
    monkeypatch.setattr(worker_shares, "STRIPE_BYTES", 0)
