"""Rules for cutting a text so that the pieces' token ids, one after the other, are those of the whole text.

The rules are read off the SentencePiece model itself. They rest on the way in which a BPE model encodes. The normaliser
replaces the longest match of a table at each position, and characters become symbols. Then two neighbouring symbols
merge, only into a piece of the vocabulary, the best-scored pair first, the leftmost of equals. So a cut between two
characters changes nothing if no entry of the normaliser's table matches across it and no piece holds the two side by
side. No symbol ever spans such a cut, and the merges on either side do not see each other.

Two kinds of positions qualify:

- Before a space, and before a newline if the model turns it into a space. Pieces hold U+2581, the space's form in the
  vocabulary, only in front.
- Between two *plain* characters, if no piece holds them side by side and the next character is plain or a space, too.
  Plain is printable ASCII that the normaliser leaves alone.

The normaliser's table must meet three conditions; otherwise the model's texts are encoded whole:

- No entry holds printable ASCII or a space behind its first byte, so none reaches across a cut.
- None begins with a space: a space stays one, whatever follows.
- None gives two spaces or U+2581: then the text before a cut would decide whether a space there is kept.

A newline counts as a space only if its entry gives a space and no longer entry begins with it or holds it.

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

Int64 = npt.NDArray[np.int64]
DAMAGED = "its normaliser's table is damaged"
HAS_RESULT = 0x100
LABEL = 0x800000FF
VALUE = 0x80000000
"""Bit of units that hold a value, which is in the other bits."""


@dataclass(frozen=True)
class CutRules:
    """The rules of one model, as tables over bytes of UTF-8; :func:`cut_rules` derives them."""

    newline_is_space: bool
    plain: npt.NDArray[np.bool_]
    """True for printable ASCII that the normaliser leaves unchanged, [256]."""
    between: npt.NDArray[np.uint8]
    """Rule for cutting between two bytes, by first byte * 256 + second byte, [65536]: NEVER, IF_PLAIN_FOLLOWS or
    ALWAYS."""


class NoGuarantee(Exception):
    """Cutting is not known to be exact for this model; the message gives the reason."""


def cut_rules(serialized_model: bytes) -> CutRules:
    """Derive the rules from a model. Raises NoGuarantee for a model whose options the rules do not cover."""
    model = model_pb2.ModelProto()
    try:
        model.ParseFromString(serialized_model)
        texts = [piece.piece for piece in model.pieces]
        joined = b"".join([b"\xff" + text.encode() for text in texts])  # no text holds the byte ff
    except (DecodeError, UnicodeError) as error:
        raise NoGuarantee(f"its description cannot be read ({error})") from error
    _require_known_options(model, texts, joined)
    table = NormalizerTable(model.normalizer_spec.precompiled_charsmap)
    _require_harmless_entries(table)
    plain = np.zeros(256, np.bool_)
    plain[0x21:0x7F] = True
    plain[list(table.alone)] = False
    newline = table.alone.get(NEWLINE) == b" " and NEWLINE not in table.begins_longer | table.inner
    return CutRules(newline, plain, _between(joined, plain))


def _require_harmless_entries(table: "NormalizerTable") -> None:
    """Raise NoGuarantee if an entry breaks a condition that the module's docstring names."""
    if table.inner & {*range(0x20, 0x7F)}:
        raise NoGuarantee("its normaliser has rules with ASCII characters inside")
    if SPACE in table.begins_longer or table.alone.get(SPACE, b" ") != b" ":
        raise NoGuarantee("its normaliser has rules that begin with a space")
    if b"  " in table.outputs or SPACE_SYMBOL.encode() in table.outputs:
        raise NoGuarantee("its normaliser makes several spaces at once, or U+2581, out of other characters")
    try:
        table.outputs.decode()
    except UnicodeDecodeError as error:
        raise NoGuarantee("its normaliser makes bytes that are no text") from error


def _require_known_options(model: Any, texts: Sequence[str], joined: bytes) -> None:
    """Raise NoGuarantee for a model whose training or normalisation differs from the argument's assumptions."""
    trainer, normalizer, kinds = model.trainer_spec, model.normalizer_spec, model_pb2.ModelProto.SentencePiece
    types = [piece.type for piece in model.pieces]
    scores = np.array([piece.score for piece in model.pieces])
    space = SPACE_SYMBOL.encode()
    checks = (
        (trainer.model_type == model_pb2.TrainerSpec.BPE, "it is not a BPE model"),
        (trainer.byte_fallback, "it has no byte fallback"),
        (not trainer.treat_whitespace_as_suffix, "it writes spaces behind words"),
        (normalizer.add_dummy_prefix, "it puts no space before the text"),
        (normalizer.remove_extra_whitespaces, "it keeps runs of spaces"),
        (normalizer.escape_whitespaces, "it does not escape spaces"),
        (kinds.USER_DEFINED not in types, "it has user-defined pieces"),
        (
            (SPACE_SYMBOL, kinds.NORMAL) in zip(texts, types, strict=True),
            "a single space is not one of its pieces",
        ),
        (not np.isnan(scores).any(), "the scores of its pieces have no order"),
        (joined.count(space) == joined.count(b"\xff" + space), "it has pieces that span words"),
    )
    for holds, reason in checks:
        if not holds:
            raise NoGuarantee(reason)


def _between(joined: bytes, plain: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Make the table ``between`` of :class:`CutRules`; ``joined``: all pieces, a byte ff before each."""
    between = np.zeros((256, 256), np.uint8)
    between[np.ix_(plain, plain)] = IF_PLAIN_FOLLOWS
    between[SPACE, plain] = IF_PLAIN_FOLLOWS
    characters = np.frombuffer(joined.replace(SPACE_SYMBOL.encode(), b" "), np.uint8)
    between[characters[:-1], characters[1:]] = NEVER
    between[:, SPACE] = ALWAYS
    return between.reshape(-1)


class NormalizerTable:
    """The table by which a model normalises text, as far as :func:`cut_rules` asks for its entries.

    At each place of a text the longest matching entry is replaced by its result; if none matches, one character is
    kept. The table is a double-array trie of byte strings (Darts-clone) and the strings that they become.

    A unit is 32 bits: bits 0-7 and 31 its label, bit 8 whether an entry ends here, bits 9-30 where its children are,
    each at that place xor its label. The value of an entry is in the child with label 0: an offset into ``outputs``.
    """

    def __init__(self, charsmap: bytes) -> None:
        """``charsmap``: the bytes in a model's NormalizerSpec; empty for none. Raises NoGuarantee for a damaged one."""
        if charsmap and len(charsmap) < 4:
            raise NoGuarantee(f"{DAMAGED}: it is shorter than its header")
        size = struct.unpack_from("<I", charsmap)[0] if charsmap else 0
        if size % 4 or size > max(0, len(charsmap) - 4):
            raise NoGuarantee(f"{DAMAGED}: its trie is longer than the table")
        self._units = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64)
        self.outputs = charsmap[4 + size :]
        """The results of all entries, each up to a zero byte."""
        self.alone: dict[int, bytes] = {}
        """First bytes that are entries on their own, each with its result."""
        self.begins_longer: set[int] = set()
        """First bytes of entries of several bytes."""
        self.inner: set[int] = set()
        """Bytes that occur in entries anywhere but at their beginning."""
        if len(self._units):
            self._read()

    def _read(self) -> None:
        # A node's children are the units whose place xor label is where the node says its children are.
        labels = self._units & LABEL
        units = np.flatnonzero((labels > 0) & (labels < 256))
        bases = units ^ labels[units]
        order = np.argsort(bases, kind="stable")
        self._units_by_base, self._bases = units[order], bases[order]

        first, _ = self._children(np.zeros(1, np.int64))
        results = self._results(first)
        for node, label, result in zip(first, self._units[first] & 0xFF, results, strict=True):
            if result >= 0:
                self.alone[int(label)] = self.outputs[result : self._end_of(result)]
            if len(self._children(np.array([node]))[0]):
                self.begins_longer.add(int(label))
        self._visit_below(first)

    def _visit_below(self, nodes: Int64) -> None:
        """Find the bytes of all nodes below ``nodes``, and check every result. Branches share their ends."""
        visited = np.zeros(len(self._units), np.bool_)
        while len(nodes):
            visited[nodes] = True
            nodes, labels = self._children(nodes)
            self._results(nodes)
            self.inner.update(np.unique(labels).tolist())
            nodes = np.unique(nodes[~visited[nodes]])

    def _children(self, nodes: Int64) -> tuple[Int64, Int64]:
        """Return the children of ``nodes``, and the children's labels (1 to 255)."""
        bases = nodes ^ self._offsets(nodes)
        first, stop = (np.searchsorted(self._bases, bases, side) for side in ("left", "right"))
        counts = stop - first
        positions = np.arange(counts.sum()) + np.repeat(stop - np.cumsum(counts), counts)  # first to last of each node
        children = self._units_by_base[positions]
        return children, self._units[children] & 0xFF

    def _offsets(self, nodes: Int64) -> Int64:
        units = self._units[nodes]
        return (units >> 10) << ((units & 0x200) >> 6)

    def _results(self, nodes: Int64) -> Int64:
        """Return the start in ``outputs`` of the result of each node's entry; -1 if no entry ends at the node."""
        results = np.full(len(nodes), -1, np.int64)
        has_entry = (self._units[nodes] & HAS_RESULT) != 0
        positions = nodes[has_entry] ^ self._offsets(nodes[has_entry])
        if (positions >= len(self._units)).any():
            raise NoGuarantee(f"{DAMAGED}: an entry lies outside of it")
        value_units = self._units[positions]
        results[has_entry] = value_units & ~VALUE
        if not (value_units & VALUE).all() or (results >= len(self.outputs)).any():
            raise NoGuarantee(f"{DAMAGED}: the result of an entry lies outside of it")
        return results

    def _end_of(self, result: int) -> int:
        stop = self.outputs.find(b"\0", result)
        return stop if stop >= 0 else len(self.outputs)
