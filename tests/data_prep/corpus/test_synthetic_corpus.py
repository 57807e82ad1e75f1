"""The made-up corpus: the same bytes for the same seed, in C4's format."""

import gzip
import json
from pathlib import Path

import pytest

from data_prep.corpus.synthetic_corpus import stored_gzip
from tests.support import command


def test_corpus_bytes_depend_on_the_seed_alone(corpus: Path, tmp_path: Path) -> None:
    sizes = ["--size.shards", 3, "--size.documents-per-shard", 60, "--size.validation-documents", 10]
    for seed, same in ((5, True), (6, False)):
        again = tmp_path / str(seed)
        assert command("data_prep", "synthetic-corpus", "--output", again, "--seed", seed, *sizes).returncode == 0
        files = sorted(path.relative_to(corpus) for path in corpus.rglob("*.json*"))
        assert len(files) == 4
        assert all(((again / file).read_bytes() == (corpus / file).read_bytes()) is same for file in files)


def test_corpus_is_in_c4s_format(corpus: Path) -> None:
    with gzip.open(corpus / "en" / "c4-train.00001-of-00003.json.gz") as file:
        documents = [json.loads(line) for line in file]
    assert len(documents) == 60
    assert {"text", "timestamp", "url"} == set(documents[0])
    assert all("\n" in document["text"] or "." in document["text"] for document in documents)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 200_000])
def test_stored_gzip_is_gzip(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert gzip.decompress(stored_gzip(data[:size])) == data[:size]
