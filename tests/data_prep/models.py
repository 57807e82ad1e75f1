"""SentencePiece models of several kinds, texts that are hard to cut, and the comparison with SentencePiece itself."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from data_prep.tokenizing.tokenizer import TRAINING_OPTIONS, Tokenizer
from tests.data_prep import english_text

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


class Models:
    """The paths of ``MODELS``, each trained when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Path:
        path = self._folder / f"{name}.model"
        return path if path.exists() else train(path, **MODELS[name][0])

    def fast(self, name: str) -> FastTokenizer:
        """A tokenizer that has learned nothing yet."""
        return FastTokenizer(Tokenizer(self[name]), np.dtype(np.uint16))


def train(path: Path, vocab_size: int = 700, **options: Any) -> Path:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(english_text.LINES),
        model_writer=model,
        minloglevel=2,
        **{**REFERENCE, "vocab_size": vocab_size, "hard_vocab_limit": False, **options},
    )
    path.write_bytes(model.getvalue())
    return path


def assert_same(tokenizer: FastTokenizer, texts: Sequence[str]) -> None:
    ids, sizes = tokenizer.encode_documents([text.encode() for text in texts])
    document_ends = np.cumsum(sizes)
    encoded = [ids[end - size : end].tolist() for end, size in zip(document_ends, sizes, strict=True)]
    for text, encoded_ids in zip(texts, encoded, strict=True):
        assert encoded_ids == tokenizer.plain.encode(text), repr(text)
