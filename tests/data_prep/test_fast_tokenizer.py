"""The fast path gives SentencePiece's own ids, for every text and model, or does not cut at all."""

import io
import multiprocessing
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.tokenizing import fast_tokenizer, segment_ids, segment_table, shared_segments
from data_prep.tokenizing.cut_rules import cut_rules
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from data_prep.tokenizing.tokenizer import TRAINING_OPTIONS, Tokenizer
from tests.support import REPOSITORY

ENGLISH = [line for line in (REPOSITORY / "README.md").read_text().splitlines() if line.strip()]
REFERENCE = {**TRAINING_OPTIONS, "num_threads": 1}

MODELS: dict[str, tuple[dict[str, Any], str | None]] = {
    # options of training, and why texts cannot be cut for such a model
    "reference": ({}, None),
    "merges digits": ({"split_digits": False}, None),
    "mixes scripts": ({"split_by_unicode_script": False, "split_by_number": False}, None),
    "lower case": ({"normalization_rule_name": "nmt_nfkc_cf"}, None),
    "nfkc": ({"normalization_rule_name": "nfkc"}, None),
    "as it is": ({"normalization_rule_name": "identity"}, None),
    "few characters": ({"character_coverage": 0.98}, None),
    "unigram": ({"model_type": "unigram"}, "not a BPE model"),
    "no bytes": ({"byte_fallback": False}, "no byte fallback"),
    "own symbols": ({"user_defined_symbols": ["<sep>", "the cat"]}, "user-defined"),
    "spans words": ({"split_by_whitespace": False}, "pieces that span words"),
    "suffix": ({"treat_whitespace_as_suffix": True}, "writes spaces behind words"),
    "no prefix": ({"add_dummy_prefix": False}, "no space before the text"),
    "keeps spaces": ({"remove_extra_whitespaces": False}, "keeps runs of spaces"),
    "runs of spaces": ({"allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False}, "keeps runs"),
}

TEXTS = [
    "",
    " ",
    "\n",
    "\u2581",
    "a\u2581 b",
    "a \u2581\u2581 b\u2581",
    "word\u2581",
    "<pad> </s> <unk> <s> <0x41> <0x0A>",
    "x<pad>y</s>z",
    "a\tb\rc\x0bd\x0ce\x1cf\x85g",
    "a\u00a0b \u00a0c\u3000 d\u2028e\u2003f\u200bg\ufeffh",
    "  two  spaces   and\n\n\nlines  ",
    "caf\u00e9 cafe\u0301 \ufb01ne \u2460 \u00bd \u212b \uff21\uff42\uff13",
    "\u0301x \u0301 x\u0301, x,\u0301 =\u0338 a=\u0338b",
    "\u00a8x x\u00a8 x \u00a8 \ufdfa \u00b4 \u02dc",
    "\u6587\u5b57\u306e\u9593\u306b\u7a7a\u767d\u306f\u306a\u3044\u3002\u6587\u5b57",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "nul\x00 \x00 a\x00b \x01 a\x01 \x7f",
    "2019 3.14 1,000,000 a1b2c3 007",
    "https://example.org/a?b=c&d=%20#e",
    'don\'t (really), "quoted"... [x]{y}<z>',
    "A" * 14 + " " + "A" * 15 + " " + "A" * 16 + " " + "b" * 63 + " " + "b" * 64 + " " + "b" * 65,
    "\ufffd \uffff \U0010ffff \ue000",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u1112\u1161\u11ab\uae00",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: train(folder / f"{name}.model", **options) for name, (options, _) in MODELS.items()}


def train(path: Path, vocab_size: int = 700, **options: Any) -> Path:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH),
        model_writer=model,
        minloglevel=2,
        **{**REFERENCE, "vocab_size": vocab_size, "hard_vocab_limit": False, **options},
    )
    path.write_bytes(model.getvalue())
    return path


def assert_same(tokenizer: FastTokenizer, texts: Sequence[str]) -> None:
    ids, sizes = tokenizer.encode_documents([text.encode() for text in texts])
    ends = np.cumsum(sizes)
    found = [ids[end - size : end].tolist() for end, size in zip(ends, sizes, strict=True)]
    for text, own in zip(texts, found, strict=True):
        assert own == tokenizer.plain.encode(text), repr(text)


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_sentencepieces_own(name: str, models: dict[str, Path]) -> None:
    tokenizer = FastTokenizer(Tokenizer(models[name]), np.dtype(np.uint16))
    reason = MODELS[name][1]
    assert tokenizer.why_slow is None if reason is None else reason in str(tokenizer.why_slow)
    for _ in range(2):  # the second time from the table
        assert_same(tokenizer, TEXTS)
        assert_same(tokenizer, ENGLISH)
        for text in TEXTS:
            assert_same(tokenizer, [text])


FRAGMENTS = st.one_of(
    st.sampled_from([fragment for text in TEXTS for fragment in text.split(" ")]),
    st.sampled_from(sorted({word for text in ENGLISH for word in text.split(" ")})),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.text(st.characters(max_codepoint=0x7F), max_size=20),
    st.sampled_from([" ", "  ", "\n", "\t", "\u2581", "\u0301", "\u00a0", "\x00", "e", ","]),
)
DOCUMENTS = st.lists(st.lists(FRAGMENTS, max_size=12).map("".join) | st.lists(FRAGMENTS).map(" ".join), max_size=4)


@pytest.mark.parametrize("name", [name for name, (_, reason) in MODELS.items() if reason is None])
def test_any_text(name: str, models: dict[str, Path]) -> None:
    tokenizer = FastTokenizer(Tokenizer(models[name]), np.dtype(np.uint16))

    @settings(max_examples=150, deadline=None)
    @given(DOCUMENTS)
    def check(documents: list[str]) -> None:
        assert_same(tokenizer, documents)

    check()


def test_random_models(tmp_path: Path) -> None:
    """Small vocabularies learn odd pieces; whatever they are, the cuts keep clear of them."""
    draw = random.Random(1)
    for number in range(12):
        options: dict[str, Any] = {
            "vocab_size": draw.choice([400, 500, 900]),
            "split_digits": draw.random() < 0.5,
            "split_by_unicode_script": draw.random() < 0.5,
            "split_by_number": draw.random() < 0.5,
            "character_coverage": draw.choice([0.98, 0.99, 1.0]),
            "normalization_rule_name": draw.choice(["nmt_nfkc", "nfkc_cf", "identity", "nfkc"]),
        }
        tokenizer = FastTokenizer(Tokenizer(train(tmp_path / f"{number}.model", **options)), np.dtype(np.uint16))
        texts = ["".join(draw.choices("abcdeE .,'-\n017(é)", k=draw.randrange(400))) for _ in range(50)]
        assert tokenizer.why_slow is None, tokenizer.why_slow
        assert_same(tokenizer, [*texts, *TEXTS, *ENGLISH])


def test_one_long_word(models: dict[str, Path]) -> None:
    tokenizer = FastTokenizer(Tokenizer(models["reference"]), np.dtype(np.uint16))
    assert_same(tokenizer, ["before", "ab" * 125_000, "x y " * 3 + "z" * 250_000 + " after"])


def test_documents_too_long_to_cut(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_tokenizer, "LONGEST_CUT_DOCUMENT", 20)
    tokenizer = FastTokenizer(Tokenizer(models["reference"]), np.dtype(np.uint16))
    assert_same(tokenizer, ["short", "this one is too long to be cut", "short", "", "and this one is as well, you see"])


@pytest.mark.parametrize("shared", [1, 40])
def test_full_tables(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, shared: int) -> None:
    """What has no room in the shared table is kept here, and forgotten when that is too much.

    One text may hold more segments than a table has slots.
    """
    monkeypatch.setattr(segment_table, "SLOTS", 64)
    monkeypatch.setattr(shared_segments, "MOST_SEGMENTS", shared)
    monkeypatch.setattr(segment_ids, "MOST_OWN_SEGMENTS", 50)
    monkeypatch.setattr(segment_ids, "MOST_LONG_SEGMENTS", 3)
    tokenizer = FastTokenizer(Tokenizer(models["reference"]), np.dtype(np.uint16))
    for _ in range(3):
        assert_same(tokenizer, ENGLISH)
        for text in [*ENGLISH, *TEXTS]:
            assert_same(tokenizer, [text])


def test_keys_that_share_a_slot(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With every key starting at the same slot, each is still found under its own bytes."""
    monkeypatch.setattr(segment_table, "_first_slots", lambda low, _: np.full(len(low), (1 << 20) - 5))
    tokenizer = FastTokenizer(Tokenizer(models["reference"]), np.dtype(np.uint16))
    for _ in range(2):
        assert_same(tokenizer, [*ENGLISH[:20], *TEXTS])


@pytest.mark.parametrize("room", [None, 40], ids=["room for all", "full"])
def test_what_another_process_has_learned(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, room: int | None
) -> None:
    """It is not encoded again, if there was room for it, and the ids are the same."""
    if room is not None:
        monkeypatch.setattr(shared_segments, "MOST_SEGMENTS", room)
    tokenizer = FastTokenizer(Tokenizer(models["reference"]), np.dtype(np.uint16))
    documents = [line.encode() for line in ENGLISH]
    for half in (documents[::2], documents[1::2]):
        process = multiprocessing.get_context("fork").Process(target=tokenizer.encode_documents, args=[half])
        process.start()
        process.join()
        assert process.exitcode == 0
    encoded: list[bytes] = []
    encode = tokenizer.plain.encode_batch

    def encode_and_note(texts: list[bytes]) -> list[list[int]]:
        encoded.extend(texts)
        return encode(texts)

    monkeypatch.setattr(tokenizer.plain, "encode_batch", encode_and_note)
    assert_same(tokenizer, ENGLISH)
    short = [text for text in encoded if len(text) <= segment_ids.LONGEST_KEY]
    assert bool(short) == (room is not None)
    assert_same(tokenizer, [*TEXTS, *ENGLISH])


def test_processes_that_learn_at_once(models: dict[str, Path]) -> None:
    """Words that all of them meet for the first time, again and again, each process in its own order."""
    tokenizer = FastTokenizer(Tokenizer(models["reference"]), np.dtype(np.uint16))
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)

    def learn(number: int) -> None:
        start.wait()
        for made_up in range(150):
            words = [f"{word}{chr(97 + made_up % 26)}{made_up}" for line in ENGLISH[:30] for word in line.split()]
            random.Random(number).shuffle(words)
            assert_same(tokenizer, [" ".join(words[:300])])

    processes = [context.Process(target=learn, args=[number]) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4


def test_a_segment_is_found_once_its_ids_are_seen() -> None:
    shared = shared_segments.SharedSegments(np.dtype(np.uint16))
    key = np.array([5], np.uint64), np.array([1 << 56], np.uint64)
    other = np.array([6], np.uint64), key[1]
    assert shared.add(*key, np.array([2]), np.array([7, 8], np.uint16)) == [2]
    assert shared.find(*key, 0) == [0]
    seen = len(shared.ids_since(0))
    assert shared.find(*key, seen) == [2]
    assert shared.add(*other, np.array([1]), np.array([9], np.uint16)) == [(2 << 32) + 1]
    assert shared.find(*other, seen) == [0]
    assert shared.ids_since(seen).tolist() == [9]
    assert shared.add(*other, np.array([1]), np.array([9], np.uint16)) == [(2 << 32) + 1]  # not a second time


def test_wide_vocabularies_have_wide_ids(models: dict[str, Path]) -> None:
    ids, sizes = FastTokenizer(Tokenizer(models["reference"]), np.dtype(np.int32)).encode_documents(
        [b"the cat", b"\xe2\x96\x81"]
    )
    assert ids.dtype == np.int32
    assert len(ids) == sizes.sum()


def test_rules_are_read_off_the_model(models: dict[str, Path]) -> None:
    rules = cut_rules(models["reference"].read_bytes())
    assert rules.newline_is_space
    assert [chr(code) for code in np.flatnonzero(rules.plain)] == [chr(code) for code in range(0x21, 0x7F)]
    assert not cut_rules(models["as it is"].read_bytes()).newline_is_space
    lower_case = cut_rules(models["lower case"].read_bytes()).plain
    assert not lower_case[ord("A")] and lower_case[ord("a")]
