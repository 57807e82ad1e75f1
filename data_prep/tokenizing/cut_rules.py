"""Where a text may be cut so that the pieces' token ids, one after the other, are those of the whole text.

The rules are read off the SentencePiece model itself. They rest on how a BPE model encodes: the normaliser replaces the
longest match of a table at each place; characters then become symbols; two neighbouring symbols merge only into a piece
of the vocabulary, the best-scored pair first, the leftmost of equals. So a cut between two characters changes nothing
if no entry of the normaliser's table matches across it and no piece holds the two side by side: then no symbol ever
spans the cut, and the merges on either side do not see each other.

Two kinds of places qualify:

- before a space (and a newline, if the model turns it into a space): pieces hold U+2581, the space's form in the
  vocabulary, only in front;
- between two *plain* characters, printable ASCII that the normaliser leaves alone, which are side by side in no piece,
  where the next character is plain or a space as well.

A text that holds U+2581 itself is not cut: it stands for a space without being treated as one by the normaliser.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2 as model_pb2

SPACE, NEWLINE = 0x20, 0x0A
SPACE_SYMBOL = "\u2581"

NEVER, IF_PLAIN_FOLLOWS, ALWAYS = 0, 1, 2


@dataclass(frozen=True)
class CutRules:
    """What :func:`cut_rules` read off a model, as tables over bytes of UTF-8."""

    newline_is_space: bool
    plain: npt.NDArray[np.bool_]
    """[256] printable ASCII that the normaliser leaves alone."""
    between: npt.NDArray[np.uint8]
    """[65536] indexed by first byte * 256 + second byte: NEVER, IF_PLAIN_FOLLOWS or ALWAYS."""


class NoGuarantee(Exception):
    """Cutting is not known to be exact for this model; the message says why."""


def cut_rules(serialized_model: bytes) -> CutRules:
    """Read the rules off a model. Raises NoGuarantee for a model whose options they do not cover."""
    model = model_pb2.ModelProto()
    try:
        model.ParseFromString(serialized_model)
    except DecodeError as error:
        raise NoGuarantee(f"its description cannot be read ({error})") from error
    pieces = [(piece.piece, piece.type) for piece in model.pieces]
    joined = b"".join(b"\xff" + text.encode() for text, _ in pieces)  # no text holds the byte ff
    _require_known_options(model, pieces, joined)
    normalizer = _Trie(model.normalizer_spec.precompiled_charsmap)
    plain = np.zeros(256, np.bool_)
    plain[0x21:0x7F] = True
    plain[list(normalizer.first_bytes_that_are_keys())] = False
    inner = normalizer.bytes_after_the_first()
    if inner & {*range(0x20, 0x7F)}:
        raise NoGuarantee("its normaliser has rules with ASCII characters inside")
    if b"  " in normalizer.outputs or SPACE_SYMBOL.encode() in normalizer.outputs:
        raise NoGuarantee("its normaliser makes several spaces at once, or U+2581, out of other characters")
    newline = normalizer.result_of(NEWLINE) == b" " and NEWLINE not in inner
    return CutRules(newline, plain, _between(joined, plain))


def _require_known_options(model: Any, pieces: Sequence[tuple[str, int]], joined: bytes) -> None:
    trainer, normalizer, kinds = model.trainer_spec, model.normalizer_spec, model_pb2.ModelProto.SentencePiece
    space = SPACE_SYMBOL.encode()
    checks = (
        (trainer.model_type == model_pb2.TrainerSpec.BPE, "it is not a BPE model"),
        (trainer.byte_fallback, "it has no byte fallback"),
        (not trainer.treat_whitespace_as_suffix, "it writes spaces behind words"),
        (normalizer.add_dummy_prefix, "it puts no space before the text"),
        (normalizer.remove_extra_whitespaces, "it keeps runs of spaces"),
        (normalizer.escape_whitespaces, "it does not escape spaces"),
        (all(kind != kinds.USER_DEFINED for _, kind in pieces), "it has user-defined pieces"),
        ((SPACE_SYMBOL, kinds.NORMAL) in pieces, "a single space is not one of its pieces"),
        (joined.count(space) == joined.count(b"\xff" + space), "it has pieces that span words"),
    )
    for holds, reason in checks:
        if not holds:
            raise NoGuarantee(reason)


def _between(joined: bytes, plain: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """See :class:`CutRules`."""
    between = np.zeros((256, 256), np.uint8)
    between[np.ix_(plain, plain)] = IF_PLAIN_FOLLOWS
    between[SPACE, plain] = IF_PLAIN_FOLLOWS
    characters = np.frombuffer(joined.replace(SPACE_SYMBOL.encode(), b" "), np.uint8)
    between[characters[:-1], characters[1:]] = NEVER
    between[:, SPACE] = ALWAYS
    return between.reshape(-1)


class _Trie:
    """The normaliser's table: a double-array trie of byte strings (Darts-clone) and the strings they become.

    A unit is 32 bits: bits 0-7 and 31 its label, bit 8 whether a key ends here, bits 9-30 where its children are, each
    at that place xor its label. The value of a key is in the child with label 0: an offset into ``outputs``.
    """

    def __init__(self, charsmap: bytes) -> None:
        size = struct.unpack_from("<I", charsmap)[0] if charsmap else 0
        if size % 4 or 4 + size > len(charsmap) + (not charsmap) * 4:
            raise NoGuarantee("its normaliser's table is damaged")
        self._units = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64)
        self.outputs = charsmap[4 + size :]
        # A node's children are the units whose place xor label is where the node says its children are.
        labels = self._units & 0x800000FF
        units = np.flatnonzero((labels > 0) & (labels < 256))
        bases = units ^ labels[units]
        order = np.argsort(bases, kind="stable")
        self._units_by_base, self._bases = units[order], bases[order]

    def _children(self, nodes: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Children of nodes, and their labels (1 to 255)."""
        bases = nodes ^ self._offsets(nodes)
        first, last = (np.searchsorted(self._bases, bases, side) for side in ("left", "right"))
        counts = last - first
        places = np.arange(counts.sum()) + np.repeat(last - np.cumsum(counts), counts)  # first to last of each node
        children = self._units_by_base[places]
        return children, self._units[children] & 0xFF

    def _offsets(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        units = self._units[nodes]
        return (units >> 10) << ((units & 0x200) >> 6)

    def _first(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return self._children(np.zeros(1, np.int64)) if len(self._units) else (np.empty(0, np.int64),) * 2

    def _ends_key(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        ends: npt.NDArray[np.bool_] = (self._units[nodes] & 0x100) != 0
        return ends

    def first_bytes_that_are_keys(self) -> set[int]:
        """Bytes that are replaced on their own."""
        nodes, labels = self._first()
        return set(labels[self._ends_key(nodes)].tolist()) if len(nodes) else set()

    def bytes_after_the_first(self) -> set[int]:
        """Bytes that occur in keys anywhere but at their beginning. Branches of the trie share their ends."""
        nodes, _ = self._first()
        seen: set[int] = set()
        visited = np.zeros(len(self._units), np.bool_)
        while len(nodes):
            visited[nodes] = True
            nodes, labels = self._children(nodes)
            seen.update(np.unique(labels).tolist())
            nodes = np.unique(nodes[~visited[nodes]])
        return seen

    def result_of(self, byte: int) -> bytes | None:
        """What a key of one byte becomes; None if it is no key."""
        nodes, labels = self._first()
        node = nodes[labels == byte]
        if not len(node) or not self._ends_key(node)[0]:
            return None
        start = int(self._units[node ^ self._offsets(node)][0]) & 0x7FFFFFFF
        return self.outputs[start : self.outputs.index(b"\0", start)]
