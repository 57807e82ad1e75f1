"""inspect: what is in a dataset, failed checks, comparisons and pictures."""

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from tests.data_prep.datasets import write_documents
from tests.support import assert_refused, command


def inspected(*arguments: object, status: int = 0) -> Any:
    done = command("data_prep", "inspect", *arguments, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_figures_of_a_small_dataset(tmp_path: Path) -> None:
    documents = [[7], [7, 7, 300], [7, 2], [300, 2, 7, 7, 9, 7, 7, 7]]
    prefix = write_documents(tmp_path / "x", documents)
    report = inspected("--data-path", prefix)
    assert (report["documents"], report["tokens"], report["dtype"]) == (4, 14, "uint16")
    assert (report["bin_bytes"], report["idx_bytes"]) == (28, 42 + 20 * 4)
    assert (report["shortest"], report["mean_length"], report["longest"]) == (1, 3.5, 8)
    assert report["percentiles"]["25"] == 1
    assert report["percentiles"]["50"] == 2
    assert report["percentiles"]["75"] == 3
    assert report["percentiles"]["99"] == 8
    assert (report["distinct_tokens"], report["largest_id"]) == (4, 300)
    assert [(token["id"], token["count"]) for token in report["most_frequent"]] == [(7, 9), (2, 2), (300, 2), (9, 1)]
    assert [token["id"] for token in report["least_frequent"]] == [9, 300, 2, 7]
    assert report["vocabulary"] is None
    shown = command("data_prep", "inspect", "--data-path", prefix).stdout
    assert "x: 4 documents, 14 tokens, uint16" in shown
    assert "1 to 8 tokens, mean 3.5, median 2" in shown
    assert "7 64.29 %, 2 14.29 %" in shown


def test_values_that_are_no_ids_are_named(tmp_path: Path) -> None:
    for bad in (-1, 1 << 20):
        write_documents(tmp_path / "x", [[1, 2], [70_000, 3, bad, bad]], vocab_size=80_000)
        done = command("data_prep", "inspect", "--data-path", tmp_path / "x")
        assert_refused(done, f"x.bin: document 1, token 2: {bad} is not a token id", status=1)


def test_a_tokenizer_shows_pieces_and_text(corpus_tokenizer: Path, tmp_path: Path) -> None:
    model = sentencepiece.SentencePieceProcessor(model_file=str(corpus_tokenizer))
    texts = ["the house of the tree", "naïve ☃ the", "7 the"]
    documents = [model.encode(text) for text in texts]
    prefix = write_documents(tmp_path / "x", documents, vocab_size=500)
    report = inspected("--data-path", prefix, "--tokenizer", corpus_tokenizer)
    the = model.piece_to_id("▁the")
    listed = next(token for token in report["most_frequent"] if token["id"] == the)
    assert (listed["count"], listed["piece"]) == (4, "▁the")
    known = report["vocabulary"]
    used = {token for document in documents for token in document}
    assert (known["pieces"], known["unused_pieces"], known["tokens_beyond"]) == (500, 500 - len(used), 0)
    assert known["decoded_documents"] == 3
    text_bytes = sum(len(text.encode()) for text in texts)
    assert known["text_bytes_per_token"] == text_bytes / sum(map(len, documents))
    shown = command("data_prep", "inspect", "--data-path", tmp_path / "x", "--tokenizer", corpus_tokenizer).stdout
    assert f"{the} '▁the'" in shown
    assert "bytes per token (3 documents decoded)" in shown


def test_tokens_beyond_the_vocabulary_fail_after_the_report(corpus_tokenizer: Path, tmp_path: Path) -> None:
    prefix = write_documents(tmp_path / "x", [[5, 6], [499, 5, 500, 501, 500]], vocab_size=50257)
    done = command("data_prep", "inspect", "--data-path", prefix, "--tokenizer", corpus_tokenizer)
    assert_refused(done, "3 tokens are beyond the tokenizer's 500 pieces", "document 1, token 2", status=1)
    assert "3 tokens beyond it" in done.stdout
    assert command("data_prep", "inspect", "--data-path", prefix).returncode == 0  # nothing to compare with


def test_a_comparison_of_two_datasets(tmp_path: Path) -> None:
    one = write_documents(tmp_path / "a", [[1, 1, 2, 2], [1, 1]])
    other = write_documents(tmp_path / "b", [[1, 1, 3, 3], [1, 1]], vocab_size=80_000)
    done = command("data_prep", "inspect", "--data-path", one, "--against", other)
    assert_refused(done, f"{one} and {other} differ, first in document 0, token 2: id 2 and id 3", status=1)
    assert "+0 documents, +0 tokens, largest gap of lengths 0.0000, total variation of tokens 0.3333" in done.stdout
    against = inspected("--data-path", one, "--against", other, status=1)["against"]
    assert against["other"]["dtype"] == "int32"
    assert against["first_difference"] == {"document": 0, "token": 2, "here": 2, "there": 3}
    assert against["length_distance"] == 0
    assert against["token_distance"] == pytest.approx(1 / 3)
    same = command(
        "data_prep", "inspect", "--data-path", one, "--against", write_documents(tmp_path / "c", [[1, 1, 2, 2], [1, 1]])
    )
    assert same.returncode == 0, same.stderr
    assert "the same documents, token by token" in same.stdout
