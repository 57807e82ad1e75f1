"""Open a tokenizer of any kind, by the name of its file, and get the fastest exact way to encode documents with it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from data_prep.tokenizing.json_tokenizer import JsonTokenizer
from data_prep.tokenizing.tokenizer import Tokenizer
from data_prep.tokenizing.whole_documents import WholeDocuments

AnyTokenizer = Tokenizer | JsonTokenizer
DocumentEncoder = FastTokenizer | WholeDocuments


@dataclass(frozen=True)
class TokenizerKind:
    """One kind of tokenizer."""

    open: Callable[[Path], AnyTokenizer]
    encoder: Callable[[Any, np.dtype[Any]], DocumentEncoder]
    """Make the encoder of documents to ids of a dtype."""


KINDS: Mapping[str, TokenizerKind] = {".json": TokenizerKind(JsonTokenizer, WholeDocuments)}
"""By the end of the file's name."""
SENTENCEPIECE = TokenizerKind(Tokenizer, FastTokenizer)
"""All other names: SentencePiece's models have any."""


def open_tokenizer(path: Path) -> AnyTokenizer:
    """Raises InputError for a file that is no tokenizer of the kind that its name tells."""
    return _kind(path).open(path)


def document_encoder(tokenizer: AnyTokenizer, dtype: np.dtype[Any]) -> DocumentEncoder:
    return _kind(tokenizer.path).encoder(tokenizer, dtype)


def _kind(path: Path) -> TokenizerKind:
    return KINDS.get(path.suffix, SENTENCEPIECE)
