"""Encode many documents at several times SentencePiece's speed; SentencePiece makes every token id.

The documents are cut at places that are known to change nothing (``cut_rules``): mostly into words, without the
punctuation around them. Nearly all of these segments have occurred before: their ids are looked up, for a block of
text at once, in a hash table of exact keys. SentencePiece encodes the others, which are remembered (``segment_ids``).

Documents that may not be cut are encoded whole, at the speed of the tokenizer's own library. So are all documents if
the model has no rules, or the tokenizer is not SentencePiece's.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from data_prep.tokenizing.cut_rules import SPACE, SPACE_SYMBOL, NoGuarantee, cut_rules
from data_prep.tokenizing.segment_ids import Ids, Int64, SegmentIds
from data_prep.tokenizing.tokenizer import AnyTokenizer, Tokenizer

LONGEST_CUT_DOCUMENT = 1 << 22

TWO_SPACES = SPACE << 8 | SPACE
HAS_SPACE_SYMBOL = re.compile(SPACE_SYMBOL.encode()).search
"""Function that finds the symbol in half the time of ``in``."""


class FastTokenizer:
    """Encode documents to exactly the ids of ``tokenizer``. The tables take up to 120 MB."""

    def __init__(self, tokenizer: AnyTokenizer, dtype: np.dtype[Any]) -> None:
        self.plain, self.dtype = tokenizer, dtype
        self.why_slow: str | None = None
        """Reason why the texts of a SentencePiece model cannot be cut; None if they can, and for other tokenizers."""
        self._may_cut = False
        if not isinstance(tokenizer, Tokenizer):
            return
        try:
            self._rules = cut_rules(tokenizer.serialized)
        except NoGuarantee as reason:
            self.why_slow = str(reason)
            return
        self._may_cut = True
        does_not_follow = ~self._rules.plain
        does_not_follow[SPACE] = False
        self._does_not_follow = does_not_follow.tobytes()
        self._segments = SegmentIds(tokenizer, self._rules, dtype)

    def encode_documents(self, documents: Sequence[bytes]) -> tuple[Ids, Int64]:
        """Return the token ids of ``documents`` (UTF-8) end to end, and the number of tokens of each."""
        if not self._may_cut:
            return self._encode_whole(documents)
        text = b" ".join((b"", *documents, b""))
        if _can_be_cut(text, max(map(len, documents), default=0)):
            return self._encode_cut(documents, text)
        whole_documents = [
            number for number, document in enumerate(documents) if not _can_be_cut(document, len(document))
        ]
        ids: list[Ids] = []
        sizes: list[Int64] = []
        for previous, number in pairwise([-1, *whole_documents, len(documents)]):
            between = documents[previous + 1 : number]
            cut = self._encode_cut(between, b" ".join((b"", *between, b"")))
            for part in (cut, self._encode_whole(documents[number : number + 1])):
                ids.append(part[0])
                sizes.append(part[1])
        return np.concatenate(ids), np.concatenate(sizes)

    def _encode_whole(self, documents: Sequence[bytes]) -> tuple[Ids, Int64]:
        ids = [np.array(self.plain.encode(document.decode()), self.dtype) for document in documents]
        return np.concatenate([np.empty(0, self.dtype), *ids]), np.array([len(part) for part in ids], np.int64)

    def _encode_cut(self, documents: Sequence[bytes], text: bytes) -> tuple[Ids, Int64]:
        """Encode documents by their segments; ``text`` is the documents with a space before each and at the end."""
        if not documents:
            return np.empty(0, self.dtype), np.empty(0, np.int64)
        if self._rules.newline_is_space:
            text = text.replace(b"\n", b" ")
        starts, lengths = self._cut(text)
        ids, counts = self._segments.ids_of(text, starts, lengths)
        ends_at = np.cumsum(np.fromiter(map(len, documents), np.int64, len(documents)) + 1)
        tokens_before = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        return ids, np.diff(tokens_before[np.searchsorted(starts, ends_at)], prepend=0)

    def _cut(self, text: bytes) -> tuple[Int64, Int64]:
        """Return the starts and lengths of the segments. ``text`` has a space before each word and at its end."""
        # Each byte and the next one, as one number.
        pairs = np.ndarray((len(text) - 1,), ">u2", text, 0, (1,)).astype(np.uint16)
        cut = self._rules.between.take(pairs)
        cut[:-1] = cut[:-1] > np.frombuffer(text.translate(self._does_not_follow), np.uint8)[2:]
        segment_ends = np.flatnonzero(cut.view(np.bool_)) + 1
        lengths = np.diff(segment_ends, prepend=0)  # the last space of the text starts nothing
        starts = segment_ends - lengths
        if (pairs == TWO_SPACES).any():
            redundant = pairs.take(starts) == TWO_SPACES
            starts, lengths = starts[~redundant], lengths[~redundant]
        return starts, lengths


def _can_be_cut(text: bytes, longest_document: int) -> bool:
    return longest_document <= LONGEST_CUT_DOCUMENT and HAS_SPACE_SYMBOL(text) is None
