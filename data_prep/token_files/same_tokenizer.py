"""Datasets that are mixed or joined must be of one tokenizer: else an id means two things."""

from collections.abc import Sequence
from pathlib import Path

from data_prep.token_files.indexed_dataset import IndexedDataset
from stage.errors import InputError
from stage.outputs.manifest import read_manifest

TITLES = {"vocab_size": "vocabulary", "append_eod": "end-of-document setting", "tokenizer": "tokenizer"}
"""Options of preprocess and merge that say how ids were made, and what messages call them."""


def require_same_tokenizer(prefixes: Sequence[Path], *, any_dtype: bool = False) -> dict[str, object]:
    """Return how all datasets were made, as options of a recipe: the dtype, and those of TITLES that a manifest tells.

    ``any_dtype``: ids may be as wide as they like, for whoever reads them one sample at a time. Raises InputError for
    the first dataset that was made otherwise than one before it, and for a damaged index or manifest.
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
