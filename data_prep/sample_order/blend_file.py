"""A blend of datasets as a small file with their places and weights, which any data path may name.

    {"blend": 1, "datasets": [{"prefix": "c4_en_6", "weight": 0.5, "tokens": 22000000000, "idx_md5": "…"}, …]}

Prefixes are relative to the file's folder. Tokens and the MD5 of the index are those of the datasets when the blend was
made: a dataset that has changed since is refused, wherever the files lie. The weights may be edited by hand.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from data_prep.token_files.indexed_dataset import IndexedDataset, idx_path
from data_prep.token_files.merge_datasets import require_same_tokenizer
from foundation.cli import JsonOption
from foundation.errors import CheckFailed, InputError
from foundation.file_formats.json_files import as_json, read_json
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import require_intact
from foundation.outputs.publish import PARTIAL, require_same_kind, write_text
from foundation.plain_text import table_text
from foundation.sizes import require_between

SUFFIX = ".blend.json"
LARGEST_FILE = 1 << 20
MAKE_IT = "make it with 'python -m data_prep blend'"

WeightsBy = Literal["tokens", "equal"]


@dataclass(frozen=True)
class WeightedDataset:
    """One dataset of a blend."""

    prefix: str
    """Prefix of the dataset. In the file it is relative to the file's folder; once read, it can be opened."""
    weight: float
    """Share of the samples; weights need not sum to 1."""
    tokens: int
    idx_md5: str


@dataclass(frozen=True)
class Blend:
    """The content of a blend's file."""

    blend: Literal[1]
    """Version of the format."""
    datasets: list[WeightedDataset]


def is_blend_file(path: str) -> bool:
    return path.endswith(SUFFIX)


def discover(folders: Sequence[Path]) -> list[Path]:
    """Return the prefixes of all datasets in and below ``folders``, sorted by name; a prefix may take the place of a
    folder.

    Raises InputError for a folder without a dataset.
    """
    found: dict[Path, None] = {}
    for folder in folders:
        if idx_path(folder).is_file():
            found[folder] = None
            continue
        indices = (path for path in sorted(folder.rglob("*.idx")) if path.with_suffix(".bin").is_file())
        here = [path.with_suffix("") for path in indices if PARTIAL not in {above.suffix for above in path.parents}]
        if not here:
            raise InputError(f"{folder}: no dataset there (a .idx beside its .bin); name a folder or a prefix")
        found.update(dict.fromkeys(here))
    return list(found)


def weights_of(tokens: Sequence[int], by: WeightsBy, *, temperature: float) -> list[float]:
    """Return a weight for each dataset, by its number of ``tokens``; the sum is 1.

    By tokens a weight is their number to the power 1 / temperature: at 1 each token is as likely as any other, above 1
    small datasets get more. Raises InputError for a temperature out of range.
    """
    require_between(temperature, 0.01, 1000, "--temperature")
    largest = max(tokens)
    weights = [1.0 if by == "equal" else (count / largest) ** (1 / temperature) for count in tokens]
    return [weight / sum(weights) for weight in weights]


def write_blend(output: Path, prefixes: Sequence[Path], weights: Sequence[float], tokens: Sequence[int]) -> None:
    """Write the file; the prefixes in it are relative to its folder.

    Raises InputError for datasets of different tokenizers, and for an output that would replace anything but a blend.
    """
    if not is_blend_file(output.name):
        raise InputError(f"--output {output}: expected a name that ends in {SUFFIX}, by which a data path knows it")
    require_same_kind(output, "--output", "a blend", lambda head: b'"blend"' in head)
    require_same_tokenizer(prefixes)
    datasets = [
        WeightedDataset(_relative(prefix, output.parent), weight, count, md5_file(idx_path(prefix)))
        for prefix, weight, count in zip(prefixes, weights, tokens, strict=True)
    ]
    write_text(output, as_json(Blend(1, datasets)))


def _relative(prefix: Path, folder: Path) -> str:
    """Return a relative path if the dataset lies below the file's folder, so that both can be moved together.

    Otherwise the path is absolute.
    """
    absolute = prefix.absolute()
    return str(absolute.relative_to(folder.absolute()) if absolute.is_relative_to(folder.absolute()) else absolute)


def read_blend(path: Path) -> list[WeightedDataset]:
    """Return the datasets of a blend, with prefixes that can be opened. Raises InputError for a file that is no
    blend."""
    try:
        found = read_json(path, Blend, mend=f"not a blend; {MAKE_IT}", largest=LARGEST_FILE).datasets
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; {MAKE_IT}") from error
    if not found or any(not 0 < one.weight < math.inf or one.tokens < 1 for one in found):
        raise InputError(f"{path}: expected datasets of a weight and some tokens each: not a blend; {MAKE_IT}")
    return [replace(dataset, prefix=str(path.parent / dataset.prefix)) for dataset in found]


def require_as_blended(blended: WeightedDataset, dataset: IndexedDataset, blend: Path) -> None:
    """Raise InputError if the dataset has another number of tokens than when it was blended; the lengths are read
    anyway.

    ``inspect`` of the blend also compares the MD5 of the index.
    """
    found = dataset.num_tokens
    if found != blended.tokens:
        raise InputError(
            f"{blended.prefix}: {found:,} tokens, {blend} was made for {blended.tokens:,}; make the blend again"
        )


def require_unchanged_blend(path: Path) -> None:
    """Raise CheckFailed for the first dataset whose index has changed, by any byte, since it was blended."""
    for blended in read_blend(path):
        prefix = Path(blended.prefix)
        IndexedDataset(prefix).require_whole()
        if md5_file(idx_path(prefix)) != blended.idx_md5:
            raise CheckFailed(f"{idx_path(prefix)}: not the index that {path} was made of; make the blend again")


def format_blend(path: Path) -> str:
    """Return a line per dataset: its share of the samples, and the number of times it is read while all are read once
    on average."""
    blend = read_blend(path)
    weights, tokens = sum(one.weight for one in blend), sum(one.tokens for one in blend)
    rows = []
    for one in blend:
        share = one.weight / weights
        rows.append([f"{share:.2%}", f"{share * tokens / one.tokens:.3f}", f"{one.tokens:,}", one.prefix])
    table = table_text(["share", "epochs", "tokens", "prefix"], rows, right={0, 1, 2})
    return f"{path}: {len(blend)} datasets, {tokens:,} tokens\n{table}"


@dataclass(frozen=True, kw_only=True)
class BlendCommand(JsonOption):
    """Find datasets, give each a weight, and write both as a small file that train, samples and inspect take.

    Example: python -m data_prep blend --input preprocessed_c4_spm/c4_en_{6,7}_c4_spm_text_document
    --output c4.blend.json --weights tokens
    """

    input: tuple[Path, ...]
    """Folders in which datasets are searched, with all folders below them; or prefixes of datasets."""
    output: Path
    """File to write, whose name ends in .blend.json."""
    weights: WeightsBy = "tokens"
    """Weight by number of tokens, or equally; other weights can be written into the file by hand."""
    temperature: float = 1.0
    """Numbers of tokens count to the power 1/TEMPERATURE: above 1 small datasets get more than their share."""

    def run(self) -> None:
        prefixes = discover(self.input)
        for prefix in prefixes:
            require_intact(prefix)
        datasets = [IndexedDataset(prefix) for prefix in prefixes]
        tokens = [dataset.num_tokens for dataset in datasets]
        weights = weights_of(tokens, self.weights, temperature=self.temperature)
        write_blend(self.output, prefixes, weights, tokens)
        print(self.output.read_text(encoding="utf-8").rstrip() if self.json else format_blend(self.output))
