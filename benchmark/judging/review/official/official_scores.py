"""Read the summarizer's table of scores, and compare it with ours."""

import json
from collections.abc import Mapping
from pathlib import Path

from benchmark.judging.results.score import score
from benchmark.judging.results.subjects import ResultSet, SubmissionPackage, names_in
from benchmark.judging.review.official.tool_verdicts import OfficialScores

MINUTES_TOLERANCE = 0.01


def official_scores(package: SubmissionPackage, table: str, renamed: Mapping[str, str]) -> OfficialScores:
    """Return the summarizer's columns by SYSTEM/BENCHMARK: time_to_train, Energy, GBS, samples_to_converge, RCP and its
    factor.

    The result is empty if the summarizer wrote no table; columns and systems that it left empty are missing.
    """
    if not table:
        return {}
    rows = {Path(str(row.get("details_url"))).stem: row for row in json.loads(table)}
    copies = {Path(original).name: Path(copy).name for copy, original in renamed.items()}
    scores: dict[str, dict[str, float | str]] = {}
    for results in package.sets:
        row = rows.get(copies.get(results.name, results.name), {})
        prefix = f"{_folder(results)}:"
        columns = {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
        scores[_scored_as(results)] = {
            name: value for name, value in columns.items() if value is not None and value == value
        }
    return scores


def _folder(results: ResultSet) -> str:
    return results.judged.name if results.folder is None else results.folder.name


def _scored_as(results: ResultSet) -> str:
    return f"{results.name}/{_folder(results)}"


def score_differences(package: SubmissionPackage, table: OfficialScores) -> list[str]:
    """Return the places where the summarizer's table lacks a system, or has another time or number of tokens than
    ours."""
    wrong = [] if table else [f"no {' or '.join(names_in(package.ruleset))} results in its table of scores"]
    for results in package.sets if table else ():
        columns, judged = table[_scored_as(results)], results.judged
        minutes, count = columns.get("time_to_train"), columns.get("samples_to_converge")
        ours, middle = score(results).minutes, results.convergence.middle
        if not isinstance(minutes, int | float):
            wrong.append(f"no score for {results.name}")
        elif ours is None or abs(minutes - ours) > MINUTES_TOLERANCE:
            wrong.append(f"{results.name}: {minutes:.4f} minutes, but the logs and scaling.json give {ours}")
        if isinstance(count, int | float) and middle is not None and abs(count - middle / judged.tokens_per_unit) > 1:
            words = f"{count:,.0f} {judged.unit} to converge, but the logs give {judged.count(middle)}"
            wrong.append(f"{results.name}: {words}")
    return wrong
