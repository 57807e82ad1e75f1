"""Encode documents one by one, each as a whole: at the speed of the tokenizer's own library."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]


class TextTokenizer(Protocol):
    """A tokenizer of any kind."""

    def encode(self, text: str) -> list[int]: ...

    def end_of_document(self) -> int: ...


class WholeDocuments:
    """Encode documents with a tokenizer of any kind."""

    why_slow = None

    def __init__(self, tokenizer: TextTokenizer, dtype: np.dtype[Any]) -> None:
        self.plain = tokenizer
        self.dtype = dtype

    def encode_documents(self, documents: Sequence[bytes]) -> tuple[Ids, Int64]:
        """Return the token ids of ``documents`` (UTF-8) end to end, and the number of tokens of each."""
        ids = [np.array(self.plain.encode(document.decode()), self.dtype) for document in documents]
        return np.concatenate([np.empty(0, self.dtype), *ids]), np.array([len(part) for part in ids], np.int64)
