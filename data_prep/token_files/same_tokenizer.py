"""Check that datasets to mix or join have one tokenizer: otherwise an id would mean two things."""

from collections.abc import Sequence
from pathlib import Path

from data_prep.token_files.indexed_dataset import IndexedDataset
from stage.errors import InputError
from stage.outputs.manifest import read_manifest

TITLES = {"vocab_size": "vocabulary", "append_eod": "end-of-document setting", "tokenizer": "tokenizer"}
"""Options of preprocess and merge that determine ids, and their names in messages."""


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
