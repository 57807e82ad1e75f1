"""One row per run and per system of any rounds: all that logs, descriptions and the review say."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas


def results_frame(paths: Sequence[Path | str], ruleset: str | None = None) -> "pandas.DataFrame":
    """The table of ``python -m benchmark results`` as a DataFrame; docs/results.md says what its columns mean.

    Raises InputError for a path without results, and for files of which none is a log. Runs the official checkers: a
    few seconds for each package.
    """
    from benchmark.results_table.reviewed_places import require_a_log, review_places
    from benchmark.results_table.table_rows import frame_of, rows_of

    places = [Path(path) for path in paths]
    require_a_log(places)
    return frame_of(rows_of(review_places(places, ruleset)))
