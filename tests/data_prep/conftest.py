from pathlib import Path

import pytest

from data_prep.corpus.synthetic_corpus import CorpusSize, write_synthetic_corpus
from data_prep.tokenizing.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up corpus; only read."""
    folder = tmp_path_factory.mktemp("corpus") / "c4"
    write_synthetic_corpus(folder, seed=5, size=CorpusSize(3, 60, 10))
    return folder


@pytest.fixture(scope="session")
def corpus_tokenizer(corpus: Path) -> Path:
    """A model of 500 pieces, trained on ``corpus``."""
    model = corpus.parent / "tokenizer.model"
    train_tokenizer(sorted((corpus / "en").iterdir()), model, vocab_size=500)
    return model
