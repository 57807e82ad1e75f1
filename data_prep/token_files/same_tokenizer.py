"""Datasets that are mixed must have one tokenizer: otherwise an id would mean two things."""

from collections.abc import Sequence
from pathlib import Path

from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path, token_dtype
from data_prep.token_files.token_check import token_problem
from foundation.errors import InputError
from foundation.outputs.manifest import Manifest, read_manifest

ID_OPTIONS = {"vocab_size": "vocabulary", "append_eod": "end-of-document setting", "tokenizer": "tokenizer"}
"""Options of preprocess that determine ids, and their names in messages."""


def require_same_tokenizer(prefixes: Sequence[Path]) -> None:
    """Raise InputError for the first dataset whose manifest names another tokenizer, vocabulary or end-of-document
    setting than one before it.

    A dataset without such a manifest must hold ids of the type and of the vocabulary that the manifests name. Raises
    InputError for a damaged index or manifest, too.
    """
    first_options: dict[str, tuple[object, Path]] = {}
    undescribed: list[IndexedDataset] = []
    for prefix in prefixes:
        dataset, manifest = IndexedDataset(prefix, any_size=True), _tokenizer_manifest(prefix)
        if manifest is None:
            undescribed.append(dataset)
            continue
        for name, title in ID_OPTIONS.items():
            option = manifest.options.get(name)
            first_option, first_prefix = first_options.setdefault(name, (option, prefix))
            if option != first_option:
                values = "" if name == "tokenizer" else f" ({option} and {first_option})"
                raise InputError(
                    f"{prefix} and {first_prefix}: datasets with different {title}{values} do not belong together; "
                    "make them anew with one tokenizer and the same options"
                )
    vocab_size, described = first_options.get("vocab_size", (None, None))
    if not isinstance(vocab_size, int):
        return
    for dataset in undescribed:
        problem = token_problem(bin_path(dataset.prefix), dataset.dtype, vocab_size)
        if dataset.dtype != token_dtype(vocab_size):
            problem = f"{dataset.prefix}: ids of {dataset.dtype.name}, not {token_dtype(vocab_size).name}"
        if problem:
            raise InputError(f"{problem}; mixed with {described}, whose vocabulary has {vocab_size} tokens")


def unknown_tokenizers(prefixes: Sequence[Path]) -> list[str]:
    """Return a line for each dataset of a blend whose tokenizer no manifest names, if that of another one is known."""
    described = {prefix: manifest for prefix in prefixes if (manifest := _tokenizer_manifest(prefix))}
    return [
        f"{prefix}: no manifest names its tokenizer and vocabulary; it is mixed with {next(iter(described))}, whose "
        f"vocabulary has {next(iter(described.values())).options['vocab_size']} tokens"
        for prefix in dict.fromkeys(prefixes)
        if described and prefix not in described
    ]


def _tokenizer_manifest(prefix: Path) -> Manifest | None:
    """Return the manifest of a dataset if it names the vocabulary."""
    manifest = read_manifest(prefix)
    return manifest if manifest is not None and "vocab_size" in manifest.options else None
