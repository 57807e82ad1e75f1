"""The report of a ``.bin/.idx`` pair: lengths, token frequencies, pieces, and how it compares with another pair."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from data_prep.inspection.dataset_scan import (
    Difference,
    check_index,
    count_lengths,
    count_tokens,
    document_ids,
    first_at_least,
    first_difference,
    largest_gap,
    total_variation,
)
from data_prep.token_files.indexed_dataset import IndexedDataset, idx_path
from data_prep.tokenizing.tokenizer import Tokenizer
from stage.errors import CheckFailed, InputError
from stage.outputs.manifest import require_intact
from stage.progress import progress

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
LISTED_TOKENS = 10
DECODED_DOCUMENTS = 1000


@dataclass(frozen=True)
class TokenCount:
    """A token, and how often it occurs."""

    id: int
    count: int
    piece: str | None
    """None where no tokenizer was given, or it has no such piece."""


@dataclass(frozen=True)
class Vocabulary:
    """The dataset against a tokenizer."""

    pieces: int
    unused_pieces: int
    """Pieces that do not occur."""
    tokens_beyond: int
    """Tokens whose id is not below ``pieces``."""
    first_beyond: tuple[int, int] | None
    """Document and token, in that document, of the first of them."""
    text_bytes_per_token: float
    """UTF-8 bytes of the decoded text, as the tokenizer normalised it."""
    decoded_documents: int
    """How many documents, evenly spread, that figure is from."""


@dataclass(frozen=True)
class DatasetReport:
    """Lengths are in tokens, sizes in bytes."""

    prefix: str
    dtype: str
    bin_bytes: int
    idx_bytes: int
    documents: int
    tokens: int
    shortest: int
    mean_length: float
    percentiles: dict[int, int]
    """Length that so many of 100 documents do not exceed."""
    longest: int
    distinct_tokens: int
    largest_id: int
    most_frequent: list[TokenCount]
    least_frequent: list[TokenCount]
    """Of the tokens that occur."""
    vocabulary: Vocabulary | None


@dataclass(frozen=True)
class DatasetComparison:
    """One dataset against another."""

    other: DatasetReport
    first_difference: Difference | None
    """None: the same documents, token by token."""
    length_distance: float
    """Kolmogorov and Smirnov's distance of the two distributions of lengths, 0 to 1."""
    token_distance: float
    """Total variation distance of the two distributions of token ids, 0 to 1."""


@dataclass(frozen=True)
class Inspected:
    """A dataset that was checked and counted."""

    report: DatasetReport
    lengths: "pd.Series[int]"
    """Documents by length in tokens, ascending."""
    tokens: "pd.Series[int]"
    """How often each id occurs, ascending by id."""
    data: IndexedDataset


def inspect_dataset(prefix: Path, tokenizer: Path | None) -> Inspected:
    """Check and count one dataset.

    Raises CheckFailed where a length, a pointer, a document end or the size of ``.bin`` is wrong, or a value is no
    token id, naming the file and the first document; InputError where a file is missing, or holds no token ids.
    """
    data = IndexedDataset(prefix, any_size=True)
    model = None if tokenizer is None else Tokenizer(tokenizer)
    num_tokens = check_index(data)
    lengths = count_lengths(data)
    with progress(f"count {prefix.name}", num_tokens * data.dtype.itemsize, "bytes") as advance:
        tokens = count_tokens(data, advance)
    by_count = tokens.iloc[np.lexsort((tokens.index, -tokens))]
    reached = np.searchsorted(lengths.cumsum(), len(data) * np.array(PERCENTILES) / 100)

    def listed(counts: "pd.Series[int]") -> list[TokenCount]:
        found = counts.iloc[:LISTED_TOKENS]
        pairs = zip(found.index.tolist(), found.tolist(), strict=True)
        return [TokenCount(token, count, piece_of(model, token)) for token, count in pairs]

    report = DatasetReport(
        prefix=str(prefix),
        dtype=data.dtype.name,
        bin_bytes=data.bin_bytes,
        idx_bytes=idx_path(prefix).stat().st_size,
        documents=len(data),
        tokens=num_tokens,
        shortest=int(lengths.index[0]),
        mean_length=num_tokens / len(data),
        percentiles={percent: int(lengths.index[place]) for percent, place in zip(PERCENTILES, reached, strict=True)},
        longest=int(lengths.index[-1]),
        distinct_tokens=len(tokens),
        largest_id=int(tokens.index[-1]),
        most_frequent=listed(by_count),
        least_frequent=listed(by_count[::-1]),
        vocabulary=None if model is None else _vocabulary(data, tokens, model),
    )
    return Inspected(report, lengths, tokens, data)


def piece_of(model: Tokenizer | None, token: int) -> str | None:
    """Return the text of a token; None where there is no model, or it has no such piece."""
    return model.piece(token) if model is not None and token < model.vocab_size else None


def compare_datasets(one: Inspected, other: Inspected) -> DatasetComparison:
    return DatasetComparison(
        other=other.report,
        first_difference=first_difference(one.data, other.data),
        length_distance=largest_gap(one.lengths, other.lengths),
        token_distance=total_variation(one.tokens, other.tokens),
    )


def _vocabulary(data: IndexedDataset, tokens: "pd.Series[int]", model: Tokenizer) -> Vocabulary:
    pieces = model.vocab_size
    known = tokens.index < pieces
    total = len(data)
    decoded = min(DECODED_DOCUMENTS, total)
    text_bytes = num_tokens = 0
    for number in range(decoded):
        ids = document_ids(data, number * total // decoded)
        ids = ids[ids < pieces]
        text_bytes += len(model.decode(ids.tolist()).encode())
        num_tokens += len(ids)
    return Vocabulary(
        pieces=pieces,
        unused_pieces=pieces - int(known.sum()),
        tokens_beyond=int(tokens[~known].sum()),
        first_beyond=None if known.all() else first_at_least(data, pieces),
        text_bytes_per_token=text_bytes / max(1, num_tokens),
        decoded_documents=decoded,
    )


def require_sound(datasets: Sequence[Inspected], comparison: DatasetComparison | None) -> None:
    """Raise CheckFailed where a token is beyond the tokenizer's vocabulary, a dataset is not what its manifest says
    (sizes, and the MD5 of small files), or the two datasets of ``comparison`` differ."""
    for dataset in datasets:
        report, known = dataset.report, dataset.report.vocabulary
        if known is not None and known.first_beyond is not None:
            document, token = known.first_beyond
            raise CheckFailed(
                f"{report.prefix}.bin: {known.tokens_beyond:,} tokens are beyond the tokenizer's {known.pieces:,} "
                f"pieces, the first of them in document {document}, token {token}"
            )
        try:
            require_intact(dataset.data.prefix)
        except InputError as error:
            raise CheckFailed(str(error)) from error
    if comparison is not None and (found := comparison.first_difference) is not None:
        here, there = ("nothing" if token is None else f"id {token}" for token in (found.here, found.there))
        raise CheckFailed(
            f"{datasets[0].report.prefix} and {comparison.other.prefix} differ, first in document {found.document}, "
            f"token {found.token}: {here} and {there}"
        )


def format_dataset_report(report: DatasetReport) -> str:
    """Several lines for a person."""
    name = Path(report.prefix).name
    lengths = "  ".join(f"{percent} %: {length:,}" for percent, length in report.percentiles.items())
    lines = [
        f"{report.prefix}: {report.documents:,} documents, {report.tokens:,} tokens, {report.dtype}",
        f"  files       {name}.bin {report.bin_bytes:,} bytes, {name}.idx {report.idx_bytes:,} bytes; "
        "every length, pointer and document end holds",
        f"  lengths     {report.shortest:,} to {report.longest:,} tokens, mean {report.mean_length:,.1f}, "
        f"median {report.percentiles[50]:,}",
        f"              {lengths}",
        f"  tokens      {report.distinct_tokens:,} distinct, largest id {report.largest_id:,}",
        f"  frequent    {_format_tokens(report.most_frequent, report.tokens)}",
        f"  rare        {_format_tokens(report.least_frequent, report.tokens)}",
    ]
    if report.vocabulary is not None:
        known = report.vocabulary
        lines += [
            f"  vocabulary  {known.pieces:,} pieces, {known.unused_pieces:,} of them unused, "
            f"{known.tokens_beyond:,} tokens beyond it",
            f"  text        {known.text_bytes_per_token:.3f} bytes per token "
            f"({known.decoded_documents:,} documents decoded)",
        ]
    return "\n".join(lines)


def _format_tokens(listed: list[TokenCount], total: int) -> str:
    def one(token: TokenCount) -> str:
        piece = "" if token.piece is None else f" {token.piece!r}"
        share = 100 * token.count / total
        return f"{token.id}{piece} {f'{share:.2f} %' if share >= 0.01 else f'{token.count:,} x'}"

    return ", ".join(one(token) for token in listed)


def format_dataset_comparison(report: DatasetReport, comparison: DatasetComparison) -> str:
    """The other dataset's report and how they compare, for a person."""
    other = comparison.other
    counts = (
        f"{report.documents - other.documents:+,} documents, {report.tokens - other.tokens:+,} tokens, "
        f"largest gap of lengths {comparison.length_distance:.4f}, "
        f"total variation of tokens {comparison.token_distance:.4f}"
    )
    verdict = "the same documents, token by token" if comparison.first_difference is None else "not the same"
    return f"{format_dataset_report(other)}\n{report.prefix} against {other.prefix}: {verdict}\n  {counts}"
