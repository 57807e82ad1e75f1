"""Build the leaderboard of a page's systems, the table of their runs, and the changes since another round."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas

from benchmark.config.accelerators import accelerator_named
from benchmark.judging.report.judgement import COLOURS, Judgement, ReportedRun, ReviewedSystem, progress_unit
from benchmark.judging.report.page_parts import (
    NOTHING,
    Cell,
    Row,
    Table,
    accelerator_minutes,
    number,
    perplexity,
    took,
)
from benchmark.judging.results.frames import systems_frame
from foundation.plain_text import counted, shortened
from foundation.sizes import duration

LeaderboardRecord = dict[str, Any]
"""One row of the table of results; None marks a missing value."""
KINDS = {"rejected": "bad", "acceptable with questions": "warn", "acceptable": "good"}
"""Colour class of each verdict."""
SYSTEM_HEAD = (
    "Rank", "System", "Score, min", "Accelerators", "Batch", "Tokens/s each", "MFU", "Convergence", "Review", "Date",
)  # fmt: skip
RUN_HEAD = ("Run", "Started, UTC", "Seed", "Time", "{unit}", "Evaluations", "Last log perplexity", "Status")
MOST_UNFOLDED_RUNS = 3
"""Most runs in an open table; the runs of a result of ten are folded away."""
CHANGE_HEAD = ("System", "Change", "Compared with", "Score before", "Score now", "Difference", "Other changes")


def records_of(frame: pandas.DataFrame) -> list[LeaderboardRecord]:
    """Return the rows of a table as plain values."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]


def systems_tables(frame: pandas.DataFrame, names: Sequence[str], judgement: Judgement) -> list[Table]:
    """Return a table per benchmark with a row per system, the best score first. The last has a row for each package
    with findings that belong to none of its systems, and for each that could not be reviewed."""
    benchmarks = list(dict.fromkeys(system.score.benchmark for system in judgement.systems)) or [""]
    packages = list(_package_rows(judgement))
    problems = [Row([Cell(NOTHING), Cell(path.name), Cell(why, kind="bad")]) for path, why in judgement.problems]
    tables = []
    for benchmark in benchmarks:
        rows = _system_rows(frame, names, judgement, benchmark) + (
            packages + problems if benchmark == benchmarks[-1] else []
        )
        label = "The systems" if len(benchmarks) == 1 else f"The systems, {benchmark}"
        tables.append(
            Table(
                label, SYSTEM_HEAD, rows, numbers=(0, 2, 4, 5, 6), look="systems cards",
                title="" if len(benchmarks) == 1 else benchmark, sortable=len(rows) > 2,
            )
        )  # fmt: skip
    return tables


def _package_rows(judgement: Judgement) -> Iterator[Row]:
    """Yield a row for each package with findings that belong to none of its systems."""
    for subject in judgement.subjects:
        errors, questions = (len(subject.of_package(severity)) for severity in ("error", "warning"))
        if errors or questions:
            words = f"{counted(errors, 'error')}, {counted(questions, 'question')}"
            review = Cell("the package itself", kind="bad" if errors else "warn", notes=[words])
            name = Cell(Path(subject.path).name, notes=["package"])
            yield Row([Cell(NOTHING), name, *[Cell(NOTHING)] * 6, review, Cell(NOTHING)])


def _system_rows(frame: pandas.DataFrame, names: Sequence[str], judgement: Judgement, benchmark: str) -> list[Row]:
    records = records_of(systems_frame(frame))[: len(names)]
    indices = [index for index, system in enumerate(judgement.systems) if system.score.benchmark == benchmark]
    longest = max((records[index]["score_minutes"] or 0.0 for index in indices), default=0.0)
    coloured = len(names) <= COLOURS
    rows = []
    for rank, index in enumerate(indices, 1):
        record, system = records[index], judgement.systems[index]
        score = record["score_minutes"]
        counts = [counted(record["errors"], "error"), counted(record["warnings"], "question")]
        prefix = "its package fails; " if record["verdict"] == "rejected" and not record["errors"] else ""
        owner = record["package"] or record["submitter"] or NOTHING
        division = f"{record['division'] or NOTHING}, {record['availability'] or NOTHING}"
        init = NOTHING if record["init_s"] is None else duration(record["init_s"])
        cells = (
            Cell(NOTHING if score is None else str(rank), order=index),
            Cell(names[index], notes=[f"{shortened(owner, 60)}; {shortened(division, 80)}"], href=f"#system-{index}",
                 swatch=f"run-{index}" if coloured else ""),
            Cell(number(score, "{:.2f}"), notes=[*_device_minutes(record), _how(system)],
                 bar=100 * score / longest if score else None),
            Cell(_devices(record), order=record["accelerators_count"]),
            Cell(number(record["global_batch_size"], "{:,.0f}")),
            Cell(number(record["tokens_per_s_per_accelerator"], "{:,.0f}")),
            Cell(number(record["mfu"], "{:.1%}"), notes=[record["peak_format"]] if record["peak_format"] else []),
            Cell(record["convergence"] or NOTHING),
            Cell(record["verdict"], kind=KINDS[record["verdict"]], notes=[f"{prefix}{', '.join(counts)}"]),
            Cell(day_of(record["run_started"]), notes=[f"init {init}"]),
        )  # fmt: skip
        rows.append(Row(cells))
    return rows


def runs_table(
    frame: pandas.DataFrame,
    runs: Sequence[ReportedRun],
    names: Sequence[str],
    judgement: Judgement,
    page_folder: Path | None,
) -> Table:
    """Return a row per run, below the name of its system if there are several.

    Links to the logs of packages are relative to ``page_folder``; with None there are no links.
    """
    unit = progress_unit([run.summary for run in runs])
    several, coloured = len(names) > 1, len({run.group for run in runs}) <= COLOURS
    with_files = [bool(system.result_set.files) for system in judgement.systems]
    records = [
        record
        for record, system in zip(records_of(frame), frame.index, strict=True)
        if system < len(with_files) and with_files[system]
    ]
    rows: list[Row] = []
    system_above = -1
    for run, record in zip(runs, records, strict=True):
        if several and run.system != system_above:
            system = judgement.systems[run.system]
            links = [(path.name, link(path, page_folder)) for path in system.result_set.files] if page_folder else []
            swatch = f"run-{run.group}" if coloured else ""
            cell = Cell(names[run.system], notes=[_devices(record)], swatch=swatch, links=links)
            rows.append(Row([cell], id=f"system-{run.system}", look="of"))
        system_above = run.system
        final_value = run.summary.evaluations[-1].log_perplexity if run.summary.evaluations else None
        cells = (
            run.name,
            day_of(record["run_started"]),
            ", ".join(map(str, run.summary.seeds)) or NOTHING,
            took(record["minutes"]),
            unit.count(record["tokens"]),
            str(record["evaluations"]),
            perplexity(final_value, run.recorded.target),
            record["status"] or NOTHING,
        )
        swatches = {0: f"run-{run.group}" if coloured and not several else ""}
        rows.append(Row([Cell(text, swatch=swatches.get(index, "")) for index, text in enumerate(cells)]))
    head = [title.format(unit=unit.name.capitalize()) for title in RUN_HEAD]
    summary = f"{len(runs)} runs" if len(runs) > MOST_UNFOLDED_RUNS else ""
    return Table("The runs", head, rows, numbers=(2, 3, 4, 5, 6), look="runs cards", summary=summary)


def _devices(record: LeaderboardRecord) -> str:
    if record["accelerators_count"] is None:
        return NOTHING
    return f"{record['accelerators_count']:,} x {shortened(record['accelerator_model_name'] or '?', 60)}"


def _device_minutes(record: LeaderboardRecord) -> Iterator[str]:
    """Yield the score times the number of accelerators, by which systems of different sizes can be compared."""
    if record["score_minutes"] is not None and record["accelerators_count"]:
        yield f"{accelerator_minutes(record['score_minutes'] * record['accelerators_count'])} accelerator-minutes"


def _how(system: ReviewedSystem) -> str:
    """Return the measured minutes and the factor, or the reason why there is no score."""
    score = system.score
    if score.minutes is None or score.measured_minutes is None:
        return score.why_no_score or NOTHING
    times = sorted(run.minutes for run in score.runs if run.minutes is not None)
    spread = f"{number(times[0], '{:.2f}')} to {number(times[-1], '{:.2f}')}"
    return spread if score.factor == 1 else f"{score.measured_minutes:.2f} x {score.factor:.4f}; {spread}"


def day_of(moment: Any) -> str:
    """Return the UTC day of a moment, or a dash."""
    return NOTHING if moment is None else f"{moment:%Y-%m-%d}"


def link(path: Path, page_folder: Path) -> str:
    """Return a relative link from a folder to a file, with every odd character encoded."""
    return "./" + quote(os.path.relpath(path, page_folder), errors="surrogateescape")


def changes_table(
    systems: Sequence[ReviewedSystem], names: Sequence[str], previous_systems: Sequence[ReviewedSystem]
) -> Table:
    """Return a row for each system, compared with the same system in another round, then a row for each system that
    the round does not have any more.

    A system is compared with that of the same package and folder. Otherwise it is compared with a system of the same
    package that has as many accelerators of the same model and no namesake.
    """
    unmatched = list(previous_systems)
    folders = Counter(previous.result_set.name for previous in previous_systems)
    partners: dict[int, tuple[str, ReviewedSystem]] = {}
    for kind, key in (("same", _namesake), ("successor", _successor)):
        for index, system in enumerate(systems):
            match = next(
                (previous for previous in unmatched if None not in key(previous) and key(previous) == key(system)), None
            )
            if index not in partners and match is not None:
                partners[index] = kind, match
                unmatched.remove(match)

    def name_of(previous: ReviewedSystem) -> str:
        folder, package = previous.result_set.name, previous.result_set.package
        return folder if folders[folder] < 2 or package is None else f"{package}/{folder}"

    rows = []
    for index, (system, name) in enumerate(zip(systems, names, strict=True)):
        minutes = system.score.minutes
        kind, partner = partners.get(index, ("new", None))
        previous_minutes = None if partner is None else partner.score.minutes
        partner_name = NOTHING if partner is None else f"{name_of(partner)}, v{partner.round}"
        ratio = f"{minutes / previous_minutes - 1:+.1%}" if minutes and previous_minutes else NOTHING
        texts = (name, kind, partner_name, number(previous_minutes, "{:.2f}"), number(minutes, "{:.2f}"), ratio)
        differences = [] if partner is None else list(_differences(system, partner))
        rows.append(Row([*map(Cell, texts), Cell("", notes=differences)]))
    for previous in unmatched:
        cells = (
            name_of(previous),
            "gone",
            f"{name_of(previous)}, v{previous.round}",
            number(previous.score.minutes, "{:.2f}"),
        )
        rows.append(Row([*map(Cell, cells), Cell(), Cell(), Cell("")]))
    return Table(
        "Changes", CHANGE_HEAD, rows, numbers=(3, 4, 5), look="changes cards", title="Since the previous round",
        sortable=len(rows) > 2,
    )  # fmt: skip


def _namesake(system: ReviewedSystem) -> tuple[object, ...]:
    return system.result_set.package or "", system.result_set.name


def _successor(system: ReviewedSystem) -> tuple[object, ...]:
    model = accelerator_named(system.score.accelerator or "") or system.score.accelerator
    return system.result_set.package or "", system.score.accelerators, model


def _differences(system: ReviewedSystem, previous: ReviewedSystem) -> Iterator[str]:
    """Yield the changes of batch size, convergence and errors. Only our rules count: no official checker judged the
    previous round."""
    for title, value, previous_value in (
        ("batch size", number(system.score.batch_size, "{:,.0f}"), number(previous.score.batch_size, "{:,.0f}")),
        ("convergence", system.result_set.convergence.standing, previous.result_set.convergence.standing),
        ("errors", len(system.findings("error")), len(previous.findings("error"))),
    ):
        if value != previous_value:
            yield f"{title} {previous_value}, now {value}"
