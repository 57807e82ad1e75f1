"""Several datasets one after the other, as one: what tokenising all their texts together would have given."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.token_files.indexed_dataset import IndexedDataset, IndexedDatasetWriter, bin_path, idx_path
from stage.digest import md5_file
from stage.errors import InputError
from stage.limits.replacing import must_be_made
from stage.manifest import Manifest, Record, record_of, require_intact, write_manifest
from stage.progress import Meter, progress

BLOCK_TOKENS = 1 << 22
STAGE = "merge"


@dataclass(frozen=True)
class Merged:
    documents: int
    tokens: int


def merge_datasets(inputs: Sequence[Path], output: Path, *, force: bool = False) -> Merged | None:
    """Write the datasets with the prefixes ``inputs`` to ``output.bin/.idx`` and its manifest.

    Returns None when that is there already. Raises InputError for datasets that do not belong together (other widths of
    tokens, other tokenizers by their manifests), that are damaged, or not those of their manifests.
    """
    started = time.monotonic()
    manifests = [require_intact(prefix) for prefix in inputs]
    datasets = [IndexedDataset(prefix) for prefix in inputs]
    options = _require_alike(datasets, manifests)
    sources = [path(prefix) for prefix in inputs for path in (bin_path, idx_path)]
    made = [bin_path(output), idx_path(output)]
    option = "--output-prefix"
    if not must_be_made(output, stage=STAGE, options=options, inputs=sources, made=made, force=force, option=option):
        return None

    records: list[Record] = []

    def before_publishing(partials: Mapping[Path, Path]) -> None:
        if not writer.num_documents:
            raise InputError(f"{output}: no document in {len(inputs)} datasets; nothing was written")
        md5s = zip(made, (writer.bin_md5.hexdigest(), writer.idx_md5), strict=True)
        write_manifest(
            output,
            stage=STAGE,
            options=options,
            inputs=records,
            outputs=[record_of(partials[path], path.name, md5) for path, md5 in md5s],
            packages=["numpy"],
            started=started,
        )

    total = sum(bin_path(prefix).stat().st_size for prefix in inputs)
    with (
        progress("merge", total, "bytes", files=len(inputs)) as meter,
        IndexedDatasetWriter(output, datasets[0].dtype, before_publishing) as writer,
    ):
        for dataset, manifest in zip(datasets, manifests, strict=True):
            records += _append(writer, dataset, manifest, meter)
    return Merged(writer.num_documents, writer.num_tokens)


def _require_alike(datasets: Sequence[IndexedDataset], manifests: Sequence[Manifest | None]) -> dict[str, object]:
    """The options that the datasets share, for the manifest."""
    first = datasets[0]
    for dataset in datasets:
        if dataset.dtype != first.dtype:
            raise InputError(
                f"{dataset.prefix}: {dataset.dtype.name} tokens, but {first.prefix} has {first.dtype.name}; they were "
                "made with other tokenizers"
            )
    known = [(dataset, manifest) for dataset, manifest in zip(datasets, manifests, strict=True) if manifest]
    for name in ("vocab_size", "append_eod"):
        values = {manifest.options.get(name): dataset.prefix for dataset, manifest in known}
        if len(values) > 1:
            found = ", ".join(f"{prefix} {value}" for value, prefix in values.items())
            raise InputError(f"--input: datasets with different {name} ({found}) do not belong together")
    preprocessed = [(dataset, manifest) for dataset, manifest in known if manifest.stage == "preprocess"]
    tokenizers = {manifest.inputs[-1].md5: dataset.prefix for dataset, manifest in preprocessed}
    if len(tokenizers) > 1:
        raise InputError(f"--input: {' and '.join(map(str, tokenizers.values()))} were made with different tokenizers")
    options: dict[str, object] = {"dtype": first.dtype.name}
    if known and "vocab_size" in known[0][1].options:
        options["vocab_size"] = known[0][1].options["vocab_size"]
    return options


def _append(
    writer: IndexedDatasetWriter, dataset: IndexedDataset, manifest: Manifest | None, meter: Meter
) -> list[Record]:
    """Copy one dataset, and check that it is the one of its manifest."""
    dataset.require_whole()
    path, index = bin_path(dataset.prefix), idx_path(dataset.prefix)
    before = [record_of(file, str(file), None) for file in (path, index)]
    digest, left = hashlib.md5(usedforsecurity=False), -writer.num_tokens
    with path.open("rb", buffering=0) as file:
        while len(ids := np.fromfile(file, dataset.dtype, BLOCK_TOKENS)):
            writer.append(ids, np.empty(0, np.int32))
            digest.update(ids.data)
            meter(ids.nbytes)
    left += writer.num_tokens
    for sizes in dataset.sizes.blocks():
        left -= int(sizes.sum(dtype=np.int64))
        writer.append(np.empty(0, dataset.dtype), sizes)
    meter(0, files=1)
    records = [record_of(path, str(path), digest.hexdigest()), record_of(index, str(index), md5_file(index))]
    for record, was in zip(records, before, strict=True):
        if left or (record.bytes, record.mtime_ns) != (was.bytes, was.mtime_ns):
            raise InputError(f"{record.name}: changed while it was read; run the command again")
    expected = {output.name: output.md5 for output in manifest.outputs} if manifest else {}
    for record in records:
        if expected.get(Path(record.name).name) not in (None, record.md5):
            raise InputError(f"{record.name}: its MD5 is not that in the dataset's manifest; make the dataset again")
    return records
