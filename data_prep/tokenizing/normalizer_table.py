"""The table by which a SentencePiece model normalises text: the bytes and results of its entries.

At each place of a text the longest matching entry is replaced by its result; if none matches, one character is kept.
The table is a double-array trie of byte strings (Darts-clone) and the strings they become.
"""

import struct

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

HAS_RESULT = 0x100
LABEL = 0x800000FF
VALUE = 0x80000000
"""Bit of units that hold a value, which is in the other bits."""


class DamagedTable(ValueError):
    """The bytes are not a table of this kind."""


class NormalizerTable:
    """The entries of a table, as far as :func:`data_prep.tokenizing.cut_rules.cut_rules` asks for them.

    A unit is 32 bits: bits 0-7 and 31 its label, bit 8 whether an entry ends here, bits 9-30 where its children are,
    each at that place xor its label. The value of an entry is in the child with label 0: an offset into ``outputs``.
    """

    def __init__(self, charsmap: bytes) -> None:
        """``charsmap``: the bytes in a model's NormalizerSpec; empty for none. Raises DamagedTable."""
        if charsmap and len(charsmap) < 4:
            raise DamagedTable("it is shorter than its header")
        size = struct.unpack_from("<I", charsmap)[0] if charsmap else 0
        if size % 4 or size > max(0, len(charsmap) - 4):
            raise DamagedTable("its trie is longer than the table")
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
        first, last = (np.searchsorted(self._bases, bases, side) for side in ("left", "right"))
        counts = last - first
        places = np.arange(counts.sum()) + np.repeat(last - np.cumsum(counts), counts)  # first to last of each node
        children = self._units_by_base[places]
        return children, self._units[children] & 0xFF

    def _offsets(self, nodes: Int64) -> Int64:
        units = self._units[nodes]
        return (units >> 10) << ((units & 0x200) >> 6)

    def _results(self, nodes: Int64) -> Int64:
        """Return the start in ``outputs`` of the result of each node's entry; -1 if no entry ends at the node."""
        results = np.full(len(nodes), -1, np.int64)
        ends = (self._units[nodes] & HAS_RESULT) != 0
        places = nodes[ends] ^ self._offsets(nodes[ends])
        if (places >= len(self._units)).any():
            raise DamagedTable("an entry lies outside of it")
        found = self._units[places]
        results[ends] = found & ~VALUE
        if not (found & VALUE).all() or (results >= len(self.outputs)).any():
            raise DamagedTable("the result of an entry lies outside of it")
        return results

    def _end_of(self, result: int) -> int:
        end = self.outputs.find(b"\0", result)
        return end if end >= 0 else len(self.outputs)
