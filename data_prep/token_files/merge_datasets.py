"""Merge several datasets into one, as if all their texts together had been tokenised.

Datasets that are merged or mixed must have one tokenizer: otherwise an id would mean two things.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from data_prep.token_files.indexed_dataset import IndexedDataset, IndexedDatasetWriter, bin_path, idx_path
from foundation.cli import OutputOptions
from foundation.errors import InputError
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import Recipe, Source, read_manifest, require_intact, source_of
from foundation.outputs.resumable_output import resumable_output
from foundation.progress import Meter, progress

STAGE = "merge"
TITLES = {"vocab_size": "vocabulary", "append_eod": "end-of-document setting", "tokenizer": "tokenizer"}
"""Options of preprocess and merge that determine ids, and their names in messages."""


@dataclass(frozen=True)
class Merged:
    documents: int
    tokens: int


def merge_datasets(inputs: Sequence[Path], output: Path, *, force: bool = False) -> Merged | None:
    """Write the datasets with the prefixes ``inputs`` to ``output.bin/.idx`` with a manifest, which keeps the facts
    about the tokenizer.

    Returns None if the output is already there. Raises InputError for datasets of different tokenizers, vocabularies,
    dtypes or end-of-document settings, and for datasets that are damaged or differ from their manifests.
    """
    for prefix in inputs:
        require_intact(prefix)
    datasets = [IndexedDataset(prefix) for prefix in inputs]
    recipe = Recipe(STAGE, require_same_tokenizer(inputs), _sources(inputs))
    made, files = [bin_path(output), idx_path(output)], [Path(source.name) for source in recipe.inputs]
    with resumable_output(output, recipe, made=made, inputs=files, force=force) as job:
        if job is None:
            return None
        total = sum(dataset.bin_bytes for dataset in datasets)
        with (
            progress("merge", total, "bytes", files=len(datasets)) as meter,
            IndexedDatasetWriter(job.new_path(), datasets[0].dtype) as writer,
        ):
            for number, dataset in enumerate(datasets):
                _append(writer, dataset, recipe.inputs[2 * number : 2 * number + 2], meter)
            if not writer.num_documents:
                raise InputError(f"{output}: no document in {len(datasets)} datasets; nothing was written")
        merged = Merged(writer.num_documents, writer.num_tokens)
        written = {
            made[0]: (bin_path(writer.prefix), writer.bin_md5.hexdigest()),
            made[1]: (idx_path(writer.prefix), writer.idx_md5),
        }
        job.publish(written, _sources(inputs), asdict(merged))
    return merged


def _sources(prefixes: Sequence[Path]) -> list[Source]:
    """Return both files of each dataset as they are now.

    A file with a manifest is identified by the manifest's MD5, which :func:`_append` compares.
    """
    found = []
    for prefix in prefixes:
        manifest = read_manifest(prefix)
        known = {record.name: record.md5 for record in manifest.outputs} if manifest else {}
        for path in (bin_path(prefix), idx_path(prefix)):
            md5 = known.get(path.name)
            found.append(Source(str(path), 1, path.stat().st_size, f"md5:{md5}") if md5 else source_of(path))
    return found


def _append(writer: IndexedDatasetWriter, dataset: IndexedDataset, sources: Sequence[Source], meter: Meter) -> None:
    """Copy one dataset; ``sources`` are its two files. Raises InputError if the dataset is damaged or has another
    MD5."""
    dataset.require_whole()
    digest = hashlib.md5(usedforsecurity=False)
    for ids in dataset.ids.blocks():
        writer.append(ids, np.empty(0, np.int32))
        digest.update(ids.data)
        meter(ids.nbytes)
    for sizes in dataset.sizes.blocks():
        writer.append(np.empty(0, dataset.dtype), sizes)
    meter(0, files=1)
    for source, md5 in zip(sources, (digest.hexdigest(), md5_file(idx_path(dataset.prefix))), strict=True):
        if source.identity.startswith("md5:") and source.identity != f"md5:{md5}":
            raise InputError(f"{source.name}: its MD5 is not that in the dataset's manifest; make the dataset again")


def require_same_tokenizer(prefixes: Sequence[Path], *, any_dtype: bool = False) -> dict[str, object]:
    """Return the options that all datasets were made with: the dtype, and those of TITLES that a manifest gives.

    ``any_dtype`` allows ids of different widths, for callers that read one sample at a time. Raises InputError for the
    first dataset that differs from one before it, and for a damaged index or manifest.
    """
    found: dict[str, object] = {}
    told_by: dict[str, Path] = {}
    for prefix in prefixes:
        dtype, manifest = IndexedDataset(prefix, any_size=True).dtype.name, read_manifest(prefix)
        options = {} if manifest is None else {name: manifest.options.get(name) for name in TITLES}
        for name, value in {"dtype": dtype, **options}.items():
            if value is None:
                continue
            known, before = found.setdefault(name, value), told_by.setdefault(name, prefix)
            if value != known and not (any_dtype and name == "dtype"):
                shown = "" if name == "tokenizer" else f" ({value} and {known})"
                raise InputError(
                    f"{prefix} and {before}: datasets with different {TITLES.get(name, name)}{shown} do not belong "
                    "together; make them anew with one tokenizer and the same options"
                )
    return found


@dataclass(frozen=True, kw_only=True)
class MergeCommand(OutputOptions):
    """Put datasets one after the other into one, in the order given.

    Example: python -m data_prep merge --input a_text_document b_text_document --output-prefix ab_text_document
    """

    input: tuple[Path, ...]
    """Datasets of one tokenizer, without .bin and .idx."""
    output_prefix: Path
    """Prefix of the dataset to write, without .bin and .idx."""

    def run(self) -> None:
        merged = merge_datasets(self.input, self.output_prefix, force=self.force)
        if merged is None:
            self.tell(None, f"{self.output_prefix}: already made from these datasets")
        else:
            text = f"{self.output_prefix}: {merged.documents:,} documents, {merged.tokens:,} tokens"
            self.tell(asdict(merged), text)
