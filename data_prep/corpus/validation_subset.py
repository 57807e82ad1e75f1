"""The validation subset: 24,567 of C4's 364,608 validation documents.

The reference's ``select_example.py`` took every 14.84th document in the order in which TensorFlow Datasets read its
shuffled files (docs/facts/reference.md a.6), and wrote down the MD5 of each text it took. So C4's files alone do not
give the published selection; that list of hashes does. Its example output, for comparison: 52,638,933 bytes of text in
209,784 lines, the longest document 95,736 bytes. (The shortest, 22, is not a length: it began at ``2^20``, which is 22
in Python.)
"""

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.corpus.input_files import InputFile, require_files
from data_prep.corpus.named_inputs import as_input, described_inputs, local_of, record_of_input
from data_prep.corpus.text_blocks import documents_of
from stage.digest import md5_file
from stage.errors import CheckFailed, InputError
from stage.limits.bounded_reading import read_bounded
from stage.limits.replacing import must_be_made
from stage.manifest import record_of, write_manifest
from stage.publish import beside, published_file

COUNT = 24_567
LARGEST_LIST = 1 << 26
"""Bytes; that of all validation documents has 12 MB."""
STAGE = "validation-subset"


@dataclass(frozen=True)
class Document:
    """One line of a C4 file."""

    line: bytes
    text: bytes
    """UTF-8."""

    @property
    def md5(self) -> str:
        return hashlib.md5(self.text, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Subset:
    """What was written."""

    documents: int
    of_documents: int
    text_bytes: int
    text_lines: int
    shortest: int
    """Bytes of text."""
    longest: int


def hashes_path(output: Path) -> Path:
    return beside(output, ".hashes")


def write_validation_subset(
    inputs: Sequence[InputFile], output: Path, *, count: int = COUNT, hash_list: Path | None = None, force: bool = False
) -> Subset | None:
    """Write the chosen lines of ``inputs`` to ``output``, as they are, and the list of their hashes beside it.

    With ``hash_list`` the documents are those it names, in its order; else every N/count-th in the order of the
    inputs. Returns None when they are there already. Raises InputError for a bad line or list, or too few documents,
    and CheckFailed when listed documents are not in the inputs.
    """
    started = time.monotonic()
    lists = [hash_list] if hash_list is not None else []
    options = {"count": None if hash_list else count}
    require_files([*local_of(inputs), *lists])
    inputs = described_inputs(inputs)
    sources = [as_input(path) for path in (*inputs, *lists)]
    made = [output, hashes_path(output)]
    if not must_be_made(output, stage=STAGE, options=options, inputs=sources, made=made, force=force):
        return None
    if hash_list is None:
        total, chosen = _evenly_spread(inputs, count)
    else:
        total, chosen = _chosen_by_hash(inputs, hash_list)
    with published_file(output) as lines, published_file(hashes_path(output)) as hashes:
        subset = _write_documents(lines, hashes, chosen, total)
        write_manifest(
            output,
            stage=STAGE,
            options=options,
            inputs=[
                record_of_input(path, md5_file(path) if isinstance(path, Path) else None) for path in (*inputs, *lists)
            ],
            outputs=[
                record_of(partial, path.name, md5_file(partial))
                for path, partial in zip(made, (lines, hashes), strict=True)
            ],
            packages=[],
            started=started,
        )
    return subset


def _write_documents(lines: Path, hashes: Path, chosen: Iterable[Document], total: int) -> Subset:
    """The documents' lines into one file, their hashes into the other; ``total`` is the number to choose from."""
    lengths: list[int] = []
    text_lines = 0
    with lines.open("wb") as file, hashes.open("w", encoding="ascii") as list_of_hashes:
        for document in chosen:
            file.write(document.line + b"\n")
            list_of_hashes.write(f"{document.md5}\n")
            lengths.append(len(document.text))
            text_lines += document.text.count(b"\n") + 1
    return Subset(len(lengths), total, sum(lengths), text_lines, min(lengths), max(lengths))


def chosen_places(total: int, count: int) -> list[int]:
    """The reference's rule, in its own floating-point steps: they can end one below ``i * total // count``."""
    if not 0 < count <= total:
        raise InputError(f"--count {count}: the inputs hold {total:,} documents")
    step = total / count
    return [int(i * step) for i in range(count)]


def _evenly_spread(inputs: Sequence[InputFile], count: int) -> tuple[int, Iterable[Document]]:
    """Number of documents in the inputs, and those at the reference's places, read as they are asked for."""
    total = sum(1 for _ in _read_documents(inputs))
    places = set(chosen_places(total, count))
    return total, (document for place, document in enumerate(_read_documents(inputs)) if place in places)


def _chosen_by_hash(inputs: Sequence[InputFile], hash_list: Path) -> tuple[int, Iterable[Document]]:
    """Number of documents in the inputs, and those that the list names, in its order."""
    listed = _read_hashes(hash_list)
    wanted = set(listed)
    found: dict[str, Document] = {}
    total = 0
    for document in _read_documents(inputs):
        total += 1
        if document.md5 in wanted:
            found.setdefault(document.md5, document)
    missing = [digest for digest in listed if digest not in found]
    if missing:
        raise CheckFailed(
            f"{hash_list}: {len(missing):,} of {len(listed):,} documents are not among the {total:,} of the inputs, "
            f"the first of them {missing[0]}"
        )
    return total, [found[digest] for digest in listed]


def _read_hashes(path: Path) -> list[str]:
    hashes = read_bounded(path, LARGEST_LIST).decode(errors="replace").split()
    for number, digest in enumerate(hashes, 1):
        if not re.fullmatch("[0-9a-f]{32}", digest):
            raise InputError(f"{path}:{number}: expected the MD5 of a document's text, got {digest[:40]!r}")
    if not hashes:
        raise InputError(f"{path}: lists no document")
    return hashes


def _read_documents(inputs: Sequence[InputFile]) -> Iterator[Document]:
    for path in inputs:
        for line, text in documents_of(path):
            # A lone surrogate has no UTF-8 form; the tokeniser refuses such a document, in words of its own.
            yield Document(line, text.encode("utf-8", "surrogatepass"))
