"""The parts one after the other: checked, published as one dataset, and named in its manifest."""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.corpus.input_files import display_name
from data_prep.preprocessing.shard_parts import Part, PartRecord, Tokens, blocks_of_part
from data_prep.preprocessing.tokenize_workers import Finished
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter, bin_path, idx_path
from stage.claims.claim_file import Claim
from stage.digest import md5_file
from stage.errors import InputError
from stage.limits.bounded_reading import UNREADABLE, read_small_json
from stage.limits.replacing import require_apart, require_replaceable
from stage.manifest import Record, manifest_path, record_of, require_intact, write_manifest
from stage.publish import beside, write_text

PACKAGES = ["numpy", "sentencepiece", "isal", "orjson"]


@dataclass(frozen=True)
class Joined:
    """What went into the dataset."""

    documents: int
    tokens: int
    skipped_lines: int
    filtered_documents: int


def skipped_path(prefix: Path) -> Path:
    return beside(prefix, ".skipped.txt")


def _joined_path(folder: Path) -> Path:
    """Says which files were about to get their names when a run was killed."""
    return folder / "joined.json"


def require_output(prefix: Path, folder: Path, inputs: Sequence[Path], *, force: bool) -> None:
    """Raise InputError where the dataset would replace something that is not ours, or is and ``force`` is not given.

    What a run that was killed while it published has left is replaced without being asked.
    """
    files = [bin_path(prefix), idx_path(prefix), skipped_path(prefix)]
    for path in (*files, manifest_path(prefix), folder):
        require_apart(path, inputs)
    existing = [path for path in files if os.path.lexists(path)]
    if not existing or _left_by_a_killed_run(prefix, folder, existing):
        return
    if not force:
        try:
            require_intact(prefix)
        except InputError as changed:
            raise InputError(f"{changed}: pass --force, or choose another --output-prefix") from None
        raise InputError(
            f"{existing[0]} exists and was made from other inputs or options, or its manifest is missing; "
            "choose another --output-prefix or pass --force"
        )
    require_replaceable(prefix, stage="preprocess", inputs=inputs, made=files)


def _left_by_a_killed_run(prefix: Path, folder: Path, existing: Sequence[Path]) -> bool:
    if manifest_path(prefix).exists():
        return False
    try:
        sizes = read_small_json(_joined_path(folder))
        return all(path.stat().st_size in sizes[path.name] for path in existing)
    except UNREADABLE:
        return False


def _announce(prefix: Path, folder: Path, sizes: dict[Path, int]) -> None:
    """Say which files, of which sizes, are about to get their names, and which of ours are about to lose them; then
    the manifest of the latter is no longer true."""
    announced = {path.name: [size, *([path.stat().st_size] if path.exists() else [])] for path, size in sizes.items()}
    write_text(_joined_path(folder), json.dumps(announced) + "\n")
    manifest_path(prefix).unlink(missing_ok=True)


def join_parts(
    finished: Finished,
    prefix: Path,
    folder: Path,
    tokenizer: Path,
    options: dict[str, Any],
    claim: Claim,
    started: float,
) -> Joined:
    """Write the dataset and its manifest. Raises InputError where a part is damaged or no document is left."""
    inputs: list[Record] = []
    skipped: list[str] = []
    filtered = 0

    def before_publishing(partials: Mapping[Path, Path]) -> None:
        if not writer.num_documents:
            raise InputError(f"{prefix}: no document with a token in {len(inputs)} files; nothing was written")
        claim.require_held()
        sizes = {path: partial.stat().st_size for path, partial in partials.items()}
        _announce(prefix, folder, {**sizes, skipped_path(prefix): len(_as_lines(skipped).encode())})

    writer = IndexedDatasetWriter(prefix, np.dtype(options["dtype"]), before_publishing)
    with writer:
        for parts in finished:
            for ids, sizes in _blocks_in_order(parts):
                writer.append(ids, sizes)
            records = [record for _, record in parts]
            inputs.append(_record_of_source(parts[0][0], records[0]))
            filtered += sum(record.filtered for record in records)
            name = display_name(parts[0][0].source.path)
            lines = sorted(line for record in records for line in record.skipped)
            skipped += [f"{name}:{number}: {message}" for number, message in lines]
    outputs = [
        record_of(bin_path(prefix), bin_path(prefix).name, writer.bin_md5.hexdigest()),
        record_of(idx_path(prefix), idx_path(prefix).name, writer.idx_md5),
    ]
    skipped_path(prefix).unlink(missing_ok=True)
    if skipped:
        write_text(skipped_path(prefix), _as_lines(skipped))
        outputs.append(record_of(skipped_path(prefix), skipped_path(prefix).name, md5_file(skipped_path(prefix))))
    write_manifest(
        prefix,
        stage="preprocess",
        options=options,
        inputs=[*inputs, record_of(tokenizer, str(tokenizer), md5_file(tokenizer))],
        outputs=outputs,
        packages=PACKAGES,
        started=started,
    )
    return Joined(writer.num_documents, writer.num_tokens, len(skipped), filtered)


def _as_lines(messages: Sequence[str]) -> str:
    return "".join(f"{message}\n" for message in messages)


def _record_of_source(part: Part, record: PartRecord) -> Record:
    """The input file as it was when it was read."""
    source = part.source
    return Record(source.path, 1, record.source_bytes, record.source_md5, source.mtime_ns, source.version)


def _blocks_in_order(parts: Sequence[tuple[Part, PartRecord]]) -> Iterator[Tokens]:
    """The blocks of a file: block i is in stripe i modulo the number of stripes."""
    for blocks in itertools.cycle([blocks_of_part(part, record) for part, record in parts]):
        block = next(blocks, None)
        if block is None:
            return
        yield block
