"""Which samples were read, and what was in them: fingerprints that do not depend on who read which."""

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from data_prep.sample_order.token_windows import DocumentPart, TokenWindows


class WitnessedSamples:
    """Token windows (``TokenWindows``) that remember of each sample what was read, until it is asked for.

    16 bytes for each sample that is read ahead; the work is done by the thread that reads.
    """

    def __init__(self, windows: TokenWindows) -> None:
        self._windows = windows
        self._seen: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def window(self, sample: int) -> npt.NDArray[np.int64]:
        tokens = self._windows.window(sample)
        self._seen[sample] = sample_print(sample, self._windows.documents(sample)), token_print(sample, tokens)
        return tokens

    def documents(self, sample: int) -> list[DocumentPart]:
        return self._windows.documents(sample)

    def take(self, samples: Iterable[int]) -> tuple[int, int]:
        """Fingerprints of the samples' documents and of their tokens, each summed up modulo 2^64; they are forgotten.

        Raises KeyError for a sample that was not read.
        """
        found = [self._seen.pop(int(sample) % len(self)) for sample in samples]
        return sum(one for one, _ in found) % (1 << 64), sum(one for _, one in found) % (1 << 64)


def sample_print(sample: int, documents: Iterable[DocumentPart]) -> int:
    """Of a sample's number and of the parts of documents that it is made of."""
    parts = (f"{part.prefix.name}\0{part.document}\0{part.begin}\0{part.end}\0" for part in documents)
    return _hash(sample, "".join(parts).encode("utf-8", "surrogateescape"))


def token_print(sample: int, tokens: npt.NDArray[np.int64]) -> int:
    """Of a sample's number and its tokens."""
    return _hash(sample, tokens.astype("<i4").tobytes())


def _hash(sample: int, content: bytes) -> int:
    digest = hashlib.blake2b(content, digest_size=8, salt=sample.to_bytes(8, "little"), usedforsecurity=False)
    return int.from_bytes(digest.digest(), "little")
