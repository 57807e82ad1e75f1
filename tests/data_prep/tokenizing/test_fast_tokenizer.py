"""The fast path gives SentencePiece's own ids, for every text and model, or does not cut at all."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.tokenizing import fast_tokenizer
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from data_prep.tokenizing.tokenizer import Tokenizer
from tests.data_prep.english_text import LINES
from tests.data_prep.models import MODELS, TEXTS, Models, assert_same
from tests.data_prep.random_models import random_texts, write_random_model


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_sentencepieces_own(name: str, models: Models) -> None:
    tokenizer = models.fast(name)
    reason = MODELS[name][1]
    assert tokenizer.why_slow is None if reason is None else reason in str(tokenizer.why_slow)
    for documents in (TEXTS, LINES, *([text] for text in TEXTS), LINES):  # in the end all come from the table
        assert_same(tokenizer, documents)


FRAGMENTS = st.one_of(
    st.sampled_from([fragment for text in TEXTS for fragment in text.split(" ")]),
    st.sampled_from(sorted({word for text in LINES for word in text.split(" ")})),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.text(st.characters(max_codepoint=0x7F), max_size=20),
    st.sampled_from([" ", "  ", "\n", "\t", "\u2581", "\u0301", "\u00a0", "\x00", "e", ","]),
)

DOCUMENTS = st.lists(st.lists(FRAGMENTS, max_size=12).map("".join) | st.lists(FRAGMENTS).map(" ".join), max_size=4)


@pytest.mark.parametrize("name", ["reference", "mixes scripts", "lower case", "as it is"])
def test_any_text(name: str, models: Models) -> None:
    tokenizer = models.fast(name)

    @settings(max_examples=25)
    @given(DOCUMENTS)
    def check(documents: list[str]) -> None:
        assert_same(tokenizer, documents)

    check()


def test_models_with_random_pieces_and_normalisers(tmp_path: Path) -> None:
    """``python -m tests.speed.same_ids --random-models N`` tries as many as one likes."""
    cut, count = 0, 40
    for seed in range(count):
        draw = random.Random(seed)
        tokenizer = FastTokenizer(Tokenizer(write_random_model(tmp_path / "m", draw)), np.dtype(np.uint16))
        if tokenizer.why_slow is None:
            cut += 1
            assert_same(tokenizer, random_texts(draw, 40))
    assert count / 3 < cut < count  # neither all refused nor all accepted


def test_one_long_word(models: Models) -> None:
    tokenizer = models.fast("reference")
    assert_same(tokenizer, ["before", "ab" * 125_000, "x y " * 3 + "z" * 250_000 + " after"])


def test_documents_too_long_to_cut(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_tokenizer, "LONGEST_CUT_DOCUMENT", 20)
    tokenizer = models.fast("reference")
    assert_same(tokenizer, ["short", "this one is too long to be cut", "short", "", "and this one is as well, you see"])


def test_wide_vocabularies_have_wide_ids(models: Models) -> None:
    ids, sizes = FastTokenizer(Tokenizer(models["reference"]), np.dtype(np.int32)).encode_documents(
        [b"the cat", b"\xe2\x96\x81"]
    )
    assert ids.dtype == np.int32
    assert len(ids) == sizes.sum()
