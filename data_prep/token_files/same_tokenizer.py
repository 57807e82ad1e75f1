"""Datasets that are mixed or joined must be of one tokenizer: else an id means two things."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from data_prep.token_files.indexed_dataset import IndexedDataset
from stage.errors import InputError
from stage.outputs.manifest import read_manifest


@dataclass(frozen=True)
class Tokenized:
    """How the ids of a dataset were made, each as far as its manifest tells (else None)."""

    dtype: str
    vocab_size: int | None = None
    append_eod: bool | None = None
    """Whether the tokenizer's end-of-sequence token stands behind each document."""
    tokenizer: str | None = None
    """Identity of the tokenizer's content, as :class:`stage.outputs.manifest.Source` has it."""

    def as_options(self) -> dict[str, object]:
        """Return what is known, as options of a recipe: those that preprocess, too, records."""
        return {name: value for name, value in asdict(self).items() if value is not None}


TITLES = {"vocab_size": "vocabulary", "append_eod": "end-of-document setting"}


def tokenized(prefix: Path) -> Tokenized:
    """Return how a dataset was made, by its index and by the manifest of preprocess or merge, if it has one.

    Raises InputError where the index or the manifest is damaged.
    """
    dtype, manifest = IndexedDataset(prefix, any_size=True).dtype.name, read_manifest(prefix)
    if manifest is None:
        return Tokenized(dtype)
    options = manifest.options
    return Tokenized(dtype, options.get("vocab_size"), options.get("append_eod"), options.get("tokenizer"))


def require_same_tokenizer(prefixes: Sequence[Path], *, any_dtype: bool = False) -> Tokenized:
    """Return how all datasets were made, what one manifest lacks filled in from another's.

    ``any_dtype``: ids may be as wide as they like, for whoever reads them one sample at a time. Raises InputError for
    the first dataset that was made otherwise than one before it.
    """
    found: dict[str, tuple[Path, object]] = {}
    for prefix in prefixes:
        this = tokenized(prefix)
        for name in (field.name for field in fields(this)):
            value = getattr(this, name)
            before, known = found.get(name, (prefix, value))
            if value not in (None, known) and not (any_dtype and name == "dtype"):
                shown = "" if name == "tokenizer" else f" ({value} and {known})"
                raise InputError(
                    f"{prefix} and {before}: datasets with different {TITLES.get(name, name)}{shown} do not belong "
                    "together; make them anew with one tokenizer and the same options"
                )
            if value is not None:
                found[name] = before, known
    return Tokenized(**{name: value for name, (_, value) in found.items()})  # type: ignore[arg-type]
