"""A blend of datasets as a small file: where they lie and how much of each, for whatever takes a data path.

    {"blend": 1, "datasets": [{"prefix": "c4_en_6", "weight": 0.5, "tokens": 22000000000, "idx_md5": "…"}, …]}

Prefixes are relative to the file's folder. Tokens and the MD5 of the index are those of the datasets when the blend was
made: a dataset that is another by now is refused, wherever the files lie.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data_prep.token_files.indexed_dataset import IndexedDataset, idx_path
from stage.digest import md5_file
from stage.errors import CheckFailed, InputError
from stage.limits.bounded_reading import DAMAGED, read_bounded, read_small_json
from stage.limits.replacing import require_same_kind
from stage.limits.sizes import require_between
from stage.publish import published_file

SUFFIX = ".blend.json"
MOST_DATASETS = 255
"""That the index of a blend can number."""
LARGEST_FILE = 1 << 20

WeightsBy = Literal["tokens", "equal", "file"]


@dataclass(frozen=True)
class BlendedPart:
    """One dataset of a blend."""

    prefix: Path
    """As it can be opened."""
    weight: float
    """Weights need not sum to 1."""
    tokens: int
    idx_md5: str


def is_blend_file(path: str) -> bool:
    return path.endswith(SUFFIX)


def discover(folders: Sequence[Path]) -> list[Path]:
    """Prefixes of all datasets in and below ``folders``, in the order of their names; a prefix itself is one, too.

    Raises InputError where there is none.
    """
    found: dict[Path, None] = {}
    for folder in folders:
        if idx_path(folder).is_file():
            found[folder] = None
            continue
        indices = (path for path in sorted(folder.rglob("*.idx")) if path.with_suffix(".bin").is_file())
        here = [path.with_suffix("") for path in indices]
        if not here:
            raise InputError(f"{folder}: no dataset there (a .idx beside its .bin); name a folder or a prefix")
        found.update(dict.fromkeys(here))
    return list(found)


def weights_of(
    prefixes: Sequence[Path], tokens: Sequence[int], by: WeightsBy, *, temperature: float, file: Path | None
) -> list[float]:
    """A weight for each dataset, which sum to 1.

    ``tokens``: by its number of tokens to the power 1 / temperature: at 1 each token is as likely as any other, above
    that small datasets get more. ``file``: a line "WEIGHT PREFIX" for each.
    """
    require_between(temperature, 0.01, 1000, "--temperature")
    if (by == "file") != (file is not None):
        raise InputError("--weights-file goes with --weights file, which needs it")
    if by == "file":
        assert file is not None
        weights = _read_weights(file, prefixes)
    elif by == "equal":
        weights = [1.0] * len(prefixes)
    else:
        largest = max(tokens)
        weights = [(count / largest) ** (1 / temperature) for count in tokens]
    total = sum(weights)
    return [weight / total for weight in weights]


def _read_weights(file: Path, prefixes: Sequence[Path]) -> list[float]:
    given: dict[str, float] = {}
    text = read_bounded(file, LARGEST_FILE).decode(errors="surrogateescape")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        weight, _, name = line.strip().partition(" ")
        try:
            given[name.strip()] = float(weight)
        except ValueError:
            raise InputError(f"{file}:{number}: {line[:80]!r}, expected WEIGHT PREFIX such as 0.5 c4/en_6") from None
        if not 0 < given[name.strip()] < math.inf:
            raise InputError(f"{file}:{number}: weight {weight}, expected a number above 0")
    names = {prefix: {str(prefix), prefix.name} & given.keys() for prefix in prefixes}
    missing = [prefix for prefix, matching in names.items() if len(matching) != 1]
    if missing:
        raise InputError(f"{file}: has no one weight for {missing[0]}; a line for each dataset, by its path or name")
    unused = given.keys() - {name for matching in names.values() for name in matching}
    if unused:
        raise InputError(f"{file}: {min(unused)}: no dataset of that name was found")
    return [given[next(iter(names[prefix]))] for prefix in prefixes]


def write_blend(output: Path, prefixes: Sequence[Path], weights: Sequence[float], tokens: Sequence[int]) -> None:
    """Write the file; its folder is what the prefixes in it are relative to."""
    if not is_blend_file(output.name):
        raise InputError(f"--output {output}: expected a name that ends in {SUFFIX}, by which a data path knows it")
    require_same_kind(output, "--output", "a blend", lambda head: b'"blend"' in head)
    if len(prefixes) > MOST_DATASETS:
        raise InputError(f"{len(prefixes)} datasets in one blend; at most {MOST_DATASETS}")
    datasets = [
        {
            "prefix": _relative(prefix, output.parent),
            "weight": weight,
            "tokens": count,
            "idx_md5": md5_file(idx_path(prefix)),
        }
        for prefix, weight, count in zip(prefixes, weights, tokens, strict=True)
    ]
    with published_file(output) as partial:
        partial.write_text(json.dumps({"blend": 1, "datasets": datasets}, indent=1) + "\n", encoding="utf-8")


def _relative(prefix: Path, folder: Path) -> str:
    """Relative where it lies below the file's folder, so that both can be moved together; else the whole path."""
    absolute = prefix.absolute()
    return str(absolute.relative_to(folder.absolute()) if absolute.is_relative_to(folder.absolute()) else absolute)


def read_blend(path: Path) -> list[BlendedPart]:
    """Raises InputError for a file that is no blend."""
    try:
        fields = read_small_json(path, LARGEST_FILE)
        if fields["blend"] != 1 or not 1 <= len(fields["datasets"]) <= MOST_DATASETS:
            raise ValueError("not a blend of version 1")
        parts = [_part(path.parent, dataset) for dataset in fields["datasets"]]
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; make it with 'python -m data_prep blend'") from error
    except DAMAGED as error:
        raise InputError(f"{path}: not a blend ({error}); make it with 'python -m data_prep blend'") from error
    return parts


def _part(folder: Path, fields: Mapping[str, Any]) -> BlendedPart:
    weight, tokens = float(fields["weight"]), int(fields["tokens"])
    if not 0 < weight < math.inf or tokens < 1:
        raise ValueError(f"weight {weight}, {tokens} tokens")
    return BlendedPart(folder / str(fields["prefix"]), weight, tokens, str(fields["idx_md5"]))


def require_as_blended(part: BlendedPart, dataset: IndexedDataset, blend: Path) -> None:
    """Raise InputError where the dataset is not the one that was blended: by its number of tokens, as the lengths
    are read anyhow. ``inspect`` of the blend compares the MD5 of the index, too."""
    found = dataset.num_tokens
    if found != part.tokens:
        raise InputError(f"{part.prefix}: {found:,} tokens, {blend} was made for {part.tokens:,}; make the blend again")


def require_unchanged_blend(path: Path) -> None:
    """Raise CheckFailed for the first dataset whose index is not, to the byte, the one that was blended."""
    for part in read_blend(path):
        dataset = IndexedDataset(part.prefix)
        dataset.require_whole()
        if md5_file(idx_path(part.prefix)) != part.idx_md5:
            raise CheckFailed(f"{idx_path(part.prefix)}: not the index that {path} was made of; make the blend again")


def blend_as_json(path: Path) -> str:
    return path.read_text(encoding="utf-8").rstrip()


def format_blend(path: Path) -> str:
    """A line per dataset: its share of the samples, and how often it is read while all are read once on average."""
    parts = read_blend(path)
    weights, tokens = sum(part.weight for part in parts), sum(part.tokens for part in parts)
    lines = [
        f"{path}: {len(parts)} datasets, {tokens:,} tokens",
        f"  {'share':>8} {'epochs':>8} {'tokens':>18}  prefix",
    ]
    for part in parts:
        share = part.weight / weights
        lines.append(f"  {share:>7.2%} {share * tokens / part.tokens:>8.3f} {part.tokens:>18,}  {part.prefix}")
    return "\n".join(lines)
