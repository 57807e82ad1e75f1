"""Report on a ``.bin/.idx`` pair: lengths, token frequencies, pieces, and a comparison with another pair."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data_prep.inspection.dataset_scan import (
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
from data_prep.tokenizing.tokenizer import AnyTokenizer, open_tokenizer
from foundation.errors import CheckFailed, InputError
from foundation.outputs.manifest import require_intact
from foundation.plain_text import folded
from foundation.progress import progress

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
LISTED_TOKENS = 10
DECODED_DOCUMENTS = 1000

Report = dict[str, Any]
"""The values that ``inspect --json`` prints. Lengths are in tokens; percentile p is the length that p % of the
documents do not exceed; ``least_frequent`` are tokens that occur."""


@dataclass(frozen=True)
class Inspected:
    """A dataset that was checked and counted."""

    report: Report
    lengths: "pd.Series[int]"
    """Documents by length in tokens, ascending."""
    tokens: "pd.Series[int]"
    """Number of occurrences of each id, ascending by id."""
    data: IndexedDataset


def inspect_dataset(prefix: Path, tokenizer: Path | None) -> Inspected:
    """Check and count one dataset.

    Raises CheckFailed, naming the file and the first document, if a length, a pointer, a document end or the size of
    ``.bin`` is wrong, or a value is no token id; InputError if a file is missing or holds no token ids.
    """
    data = IndexedDataset(prefix, any_size=True)
    model = None if tokenizer is None else open_tokenizer(tokenizer)
    num_tokens = check_index(data)
    lengths = count_lengths(data)
    with progress(f"count {prefix.name}", num_tokens * data.dtype.itemsize, "bytes") as advance:
        tokens = count_tokens(data, advance)
    by_count = tokens.iloc[np.lexsort((tokens.index, -tokens))]
    reached = np.searchsorted(lengths.cumsum(), len(data) * np.array(PERCENTILES) / 100)

    def token_rows(counts: "pd.Series[int]") -> list[Report]:
        head = counts.iloc[:LISTED_TOKENS]
        pairs = zip(head.index.tolist(), head.tolist(), strict=True)
        return [{"id": token, "count": count, "piece": piece_of(model, token)} for token, count in pairs]

    report = {
        "prefix": str(prefix),
        "dtype": data.dtype.name,
        "bin_bytes": data.bin_bytes,
        "idx_bytes": idx_path(prefix).stat().st_size,
        "documents": len(data),
        "tokens": num_tokens,
        "shortest": int(lengths.index[0]),
        "mean_length": num_tokens / len(data),
        "percentiles": dict(zip(PERCENTILES, lengths.index[reached].tolist(), strict=True)),
        "longest": int(lengths.index[-1]),
        "distinct_tokens": len(tokens),
        "largest_id": int(tokens.index[-1]),
        "most_frequent": token_rows(by_count),
        "least_frequent": token_rows(by_count[::-1]),
        "vocabulary": None if model is None else _vocabulary(data, tokens, model),
    }
    return Inspected(report, lengths, tokens, data)


def piece_of(model: AnyTokenizer | None, token: int) -> str | None:
    """Return the text of a token; None if there is no model, or the model has no such piece."""
    return model.piece(token) if model is not None and token < model.vocab_size else None


def _vocabulary(data: IndexedDataset, tokens: "pd.Series[int]", model: AnyTokenizer) -> Report:
    """Compare a dataset with a tokenizer.

    ``first_beyond`` is the document, and the token in it, of the first id that is no piece. ``text_bytes_per_token``
    counts UTF-8 bytes of the text as the tokenizer normalised it, of documents that are evenly spread.
    """
    vocab_size = model.vocab_size
    is_known = tokens.index < vocab_size
    decoded = min(DECODED_DOCUMENTS, len(data))
    text_bytes = num_tokens = 0
    for number in range(decoded):
        ids = document_ids(data, number * len(data) // decoded)
        ids = ids[ids < vocab_size]
        text_bytes += len(model.decode(ids.tolist()).encode())
        num_tokens += len(ids)
    return {
        "pieces": vocab_size,
        "unused_pieces": vocab_size - int(is_known.sum()),
        "tokens_beyond": int(tokens[~is_known].sum()),
        "first_beyond": None if is_known.all() else first_at_least(data, vocab_size),
        "text_bytes_per_token": text_bytes / max(1, num_tokens),
        "decoded_documents": decoded,
    }


def compare_datasets(first_dataset: Inspected, second_dataset: Inspected) -> Report:
    """Return the other dataset's report, the first difference, and the distances of lengths and of tokens.

    The first difference is None if all tokens are equal. The distance of lengths is Kolmogorov and Smirnov's, that of
    tokens the total variation, each 0 to 1.
    """
    difference = first_difference(first_dataset.data, second_dataset.data)
    return {
        "other": second_dataset.report,
        "first_difference": None if difference is None else asdict(difference),
        "length_distance": largest_gap(first_dataset.lengths, second_dataset.lengths),
        "token_distance": total_variation(first_dataset.tokens, second_dataset.tokens),
    }


def require_sound(datasets: Sequence[Inspected], comparison: Report | None) -> None:
    """Raise CheckFailed if a token is beyond the tokenizer's vocabulary, a dataset differs from its manifest (sizes,
    and the MD5 of small files), or the two datasets of ``comparison`` differ."""
    for dataset in datasets:
        vocabulary = dataset.report["vocabulary"]
        if vocabulary is not None and vocabulary["first_beyond"] is not None:
            document, token = vocabulary["first_beyond"]
            raise CheckFailed(
                f"{dataset.data.prefix}.bin: {vocabulary['tokens_beyond']:,} tokens are beyond the tokenizer's "
                f"{vocabulary['pieces']:,} pieces, the first of them in document {document}, token {token}"
            )
        try:
            require_intact(dataset.data.prefix)
        except InputError as error:
            raise CheckFailed(str(error)) from error
    if comparison is not None and (difference := comparison["first_difference"]) is not None:
        first_id, second_id = (
            "nothing" if difference[side] is None else f"id {difference[side]}" for side in ("here", "there")
        )
        raise CheckFailed(
            f"{' and '.join(str(dataset.data.prefix) for dataset in datasets)} differ, first in document "
            f"{difference['document']}, token {difference['token']}: {first_id} and {second_id}"
        )


def format_dataset_report(report: Report) -> str:
    """Describe the dataset in several lines for people."""
    name, percentiles = Path(report["prefix"]).name, report["percentiles"]
    lines = [
        "{prefix}: {documents:,} documents, {tokens:,} tokens, {dtype}".format(**report),
        f"  files       {name}.bin {report['bin_bytes']:,} bytes, {name}.idx {report['idx_bytes']:,} bytes; "
        "every length, pointer and document end holds",
        "  lengths     {shortest:,} to {longest:,} tokens, mean {mean_length:,.1f}, ".format(**report)
        + f"median {percentiles[50]:,}",
        "              " + "  ".join(f"{percent} %: {length:,}" for percent, length in percentiles.items()),
        "  tokens      {distinct_tokens:,} distinct, largest id {largest_id:,}".format(**report),
        f"  frequent    {_format_tokens(report['most_frequent'], report['tokens'])}",
        f"  rare        {_format_tokens(report['least_frequent'], report['tokens'])}",
    ]
    if report["vocabulary"] is not None:
        lines.append(
            "  vocabulary  {pieces:,} pieces, {unused_pieces:,} of them unused, {tokens_beyond:,} tokens beyond it\n"
            "  text        {text_bytes_per_token:.3f} bytes per token "
            "({decoded_documents:,} documents decoded)".format(**report["vocabulary"])
        )
    heading, *figures = lines
    return "\n".join((heading, *map(folded, figures)))  # a path is not folded


def _format_tokens(token_rows: list[Report], total: int) -> str:
    def format_token(id: int, count: int, piece: str | None) -> str:
        share = 100 * count / total
        often = f"{share:.2f} %" if share >= 0.01 else f"{count:,} x"
        return f"{id} {often}" if piece is None else f"{id} {piece!r} {often}"

    return ", ".join(format_token(**token) for token in token_rows)


def format_dataset_comparison(report: Report, comparison: Report) -> str:
    """Describe the other dataset, and the comparison, for people."""
    other_report = comparison["other"]
    verdict = "not the same" if comparison["first_difference"] else "the same documents, token by token"
    return (
        f"{format_dataset_report(other_report)}\n{report['prefix']} against {other_report['prefix']}: {verdict}\n"
        f"  {report['documents'] - other_report['documents']:+,} documents, "
        f"{report['tokens'] - other_report['tokens']:+,} tokens, "
        f"largest gap of lengths {comparison['length_distance']:.4f}, "
        f"total variation of tokens {comparison['token_distance']:.4f}"
    )
