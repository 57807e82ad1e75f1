"""The validation subset: 24,567 of C4's 364,608 validation documents.

The reference's ``select_example.py`` took every 14.84th document in the order in which TensorFlow Datasets read its
shuffled files (docs/facts/reference.md a.6), and wrote down the MD5 of each text it took. So C4's files alone do not
give the published selection; that list of hashes does. Its example output, for comparison: 52,638,933 bytes of text in
209,784 lines, the longest document 95,736 bytes. (The shortest, 22, is not a length: it began at ``2^20``, which is 22
in Python.)
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from data_prep.corpus.c4 import documents_of
from data_prep.corpus.input_files import InputFile, InputOptions, describe_inputs, local_paths, require_files
from foundation.errors import CheckFailed, InputError
from foundation.file_formats.json_files import read_bounded
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import Recipe, source_of
from foundation.outputs.publish import sibling
from foundation.outputs.resumable_output import resumable_output

COUNT = 24_567
BYTES_VERSION = 1
"""Version of the bytes that the command makes of the same inputs and options (``Recipe.bytes_version``)."""
LARGEST_LIST = 1 << 26
"""Most bytes of a list of hashes; the list of all validation documents has 12 MB."""


Document = tuple[bytes, bytes]
"""A line of a C4 file, and its text in UTF-8."""


@dataclass(frozen=True)
class Subset:
    """Figures of the written documents."""

    documents: int
    of_documents: int
    text_bytes: int
    text_lines: int
    shortest: int
    """Bytes of the shortest text; ``longest`` is the same for the longest one."""
    longest: int


def hashes_path(output: Path) -> Path:
    return sibling(output, ".hashes")


@dataclass(frozen=True, kw_only=True)
class ValidationSubsetCommand(InputOptions):
    """Choose the validation documents, by their hashes or every N/COUNT-th of the inputs. Also write OUTPUT.hashes.

    Example: python -m data_prep validation-subset --input en/c4-validation.*.json.gz
    --output c4-validation_24567exp.json --hash-list c4_en_3.0.1_validation_24567exp.hash
    """

    output: Path
    """File for the chosen lines, which are copied unchanged."""
    count: int = COUNT
    """Number of documents, if there is no list."""
    hash_list: Path | None = None
    """MD5 of each document's text, one per line, in order. Only such a list reproduces a published selection."""

    def run(self) -> None:
        """Raises InputError for a bad line or list, or too few documents, and CheckFailed when listed documents are
        not in the inputs."""
        lists = [] if self.hash_list is None else [self.hash_list]
        require_files(lists)
        files = describe_inputs(self.locations(), bandwidth_limit=self.bandwidth_limit)
        options = {"count": None if lists else self.count}
        sources = [*(file.source for file in files), *map(source_of, lists)]
        recipe = Recipe("validation-subset", options, sources, bytes_version=BYTES_VERSION)
        paths, inputs = [self.output, hashes_path(self.output)], [*local_paths(files), *lists]
        with resumable_output(self.output, recipe, paths=paths, inputs=inputs, force=self.force) as job:
            if job is None:
                self.tell(None, f"{self.output}: already made from these inputs")
                return
            total, documents = _chosen_by_hash(files, lists[0]) if lists else _evenly_spread(files, self.count)
            lines, hashes = job.new_path(), job.new_path()
            subset = _write_documents(lines, hashes, documents, total)
            outputs = {
                path: (new_path, md5_file(new_path)) for path, new_path in zip(paths, (lines, hashes), strict=True)
            }
            job.publish(outputs, [*(file.source_now() for file in files), *map(source_of, lists)], asdict(subset))
        self.tell(
            asdict(subset),
            f"{self.output}: {subset.documents:,} of {subset.of_documents:,} documents, {subset.text_bytes:,} bytes of "
            f"text in {subset.text_lines:,} lines, {subset.shortest:,} to {subset.longest:,} bytes per document; "
            f"hashes in {hashes_path(self.output)}",
        )


def _write_documents(lines: Path, hashes: Path, documents: Iterable[Document], total: int) -> Subset:
    """Write the documents' lines into one file, their hashes into the other; ``total`` is the number to choose from."""
    lengths: list[int] = []
    text_lines = 0
    with lines.open("wb") as file, hashes.open("w", encoding="ascii") as list_of_hashes:
        for line, text in documents:
            file.write(line + b"\n")
            list_of_hashes.write(f"{_md5(text)}\n")
            lengths.append(len(text))
            text_lines += text.count(b"\n") + 1
    return Subset(len(lengths), total, sum(lengths), text_lines, min(lengths), max(lengths))


def chosen_indices(total: int, count: int) -> list[int]:
    """Return the indices that the reference chooses, by its own floating-point steps: they can be one below ``i * total
    // count``.

    Raises InputError if ``count`` is less than 1 or more than ``total``.
    """
    if not 0 < count <= total:
        expected = (
            f"expected 1 to {total:,}, the number of the inputs' documents" if total else "the inputs have no documents"
        )
        raise InputError(f"--count {count}: {expected}")
    step = total / count
    return [int(i * step) for i in range(count)]


def _evenly_spread(files: Sequence[InputFile], count: int) -> tuple[int, Iterable[Document]]:
    """Return the number of documents in the files, and an iterator that reads those at the reference's indices."""
    total = sum(1 for _ in _read_documents(files))
    indices = set(chosen_indices(total, count))
    return total, (document for index, document in enumerate(_read_documents(files)) if index in indices)


def _chosen_by_hash(files: Sequence[InputFile], hash_list: Path) -> tuple[int, Iterable[Document]]:
    """Return the number of documents in the files, and the documents that the list names, in its order."""
    digests = _read_hashes(hash_list)
    listed_digests = set(digests)
    documents: dict[str, Document] = {}
    total = 0
    for document in _read_documents(files):
        total += 1
        if (digest := _md5(document[1])) in listed_digests:
            documents.setdefault(digest, document)
    missing_digests = [digest for digest in digests if digest not in documents]
    if missing_digests:
        raise CheckFailed(
            f"{hash_list}: {len(missing_digests):,} of {len(digests):,} documents are not among the {total:,} of the "
            f"inputs, the first of them {missing_digests[0]}"
        )
    return total, [documents[digest] for digest in digests]


def _read_hashes(path: Path) -> list[str]:
    hashes = read_bounded(path, LARGEST_LIST).decode(errors="replace").split()
    for number, digest in enumerate(hashes, 1):
        if not re.fullmatch("[0-9a-f]{32}", digest):
            raise InputError(f"{path}:{number}: expected the MD5 of a document's text, got {digest[:40]!r}")
    if not hashes:
        raise InputError(f"{path}: lists no document")
    return hashes


def _md5(text: bytes) -> str:
    return hashlib.md5(text, usedforsecurity=False).hexdigest()


def _read_documents(files: Sequence[InputFile]) -> Iterator[Document]:
    for file in files:
        for line, text in documents_of(file):
            # A lone surrogate has no UTF-8 form; the tokeniser refuses such a document, in words of its own.
            yield line, text.encode("utf-8", "surrogatepass")
