"""Build the leaderboard of a page's systems, the table of their runs, and the changes since another round."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas

from benchmark.config.accelerators import accelerator_named
from benchmark.judging.report.judgement import COLOURS, Judgement, ReportedRun, ReviewedSystem
from benchmark.judging.report.page_parts import NOTHING, Cell, Row, Table, counted, number, perplexity, took
from benchmark.judging.results.frames import systems_frame
from foundation.plain_text import shortened
from foundation.sizes import duration

Record = dict[str, Any]
"""One row of the table of results; None marks a missing value."""
KINDS = {"rejected": "bad", "acceptable with questions": "warn", "acceptable": "good"}
"""Colour class of each verdict."""
SYSTEM_HEAD = (
    "Rank", "System", "Score, min", "Accelerators", "Batch", "Tokens/s each", "MFU", "Convergence", "Review", "Date",
)  # fmt: skip
RUN_HEAD = ("Run", "Started, UTC", "Seed", "Time", "Tokens", "Evaluations", "Last log perplexity", "Status")
CHANGE_HEAD = ("System", "What", "Compared with", "Score then", "Score now", "Difference", "Else")


def records_of(frame: pandas.DataFrame) -> list[Record]:
    """Return the rows of a table as plain values."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]


def systems_tables(frame: pandas.DataFrame, names: Sequence[str], judgement: Judgement) -> list[Table]:
    """Return a table per benchmark with a row per system, the best score first. The last has a row for each package
    that could not be reviewed."""
    benchmarks = list(dict.fromkeys(one.score.benchmark for one in judgement.systems)) or [""]
    problems = [Row([Cell(NOTHING), Cell(path.name), Cell(why, kind="bad")]) for path, why in judgement.problems]
    tables = []
    for benchmark in benchmarks:
        rows = _system_rows(frame, names, judgement, benchmark) + (problems if benchmark == benchmarks[-1] else [])
        label = "The systems" if len(benchmarks) == 1 else f"The systems, {benchmark}"
        tables.append(
            Table(
                label, SYSTEM_HEAD, rows, numbers=(0, 2, 4, 5, 6), look="systems cards",
                title="" if len(benchmarks) == 1 else benchmark, sortable=len(rows) > 2,
            )
        )  # fmt: skip
    return tables


def _system_rows(frame: pandas.DataFrame, names: Sequence[str], judgement: Judgement, benchmark: str) -> list[Row]:
    records = records_of(systems_frame(frame))[: len(names)]
    mine = [place for place, system in enumerate(judgement.systems) if system.score.benchmark == benchmark]
    longest = max((records[place]["score_minutes"] or 0.0 for place in mine), default=0.0)
    coloured = len(names) <= COLOURS
    rows = []
    for rank, place in enumerate(mine, 1):
        one, system = records[place], judgement.systems[place]
        score = one["score_minutes"]
        told = [counted(one["errors"], "error"), counted(one["warnings"], "question")]
        whose = "its package fails; " if one["verdict"] == "rejected" and not one["errors"] else ""
        who = one["package"] or one["submitter"] or NOTHING
        how = f"{one['division'] or NOTHING}, {one['availability'] or NOTHING}"
        init = NOTHING if one["init_s"] is None else duration(one["init_s"])
        cells = (
            Cell(NOTHING if score is None else str(rank), order=place),
            Cell(names[place], said=[f"{shortened(who, 60)}; {shortened(how, 80)}"], href=f"#system-{place}",
                 swatch=f"run-{place}" if coloured else ""),
            Cell(number(score, "{:.2f}"), said=[_how(system)], bar=100 * score / longest if score else None),
            Cell(_devices(one), order=one["accelerators_count"]),
            Cell(number(one["global_batch_size"], "{:,.0f}")),
            Cell(number(one["tokens_per_s_per_accelerator"], "{:,.0f}")),
            Cell(number(one["mfu"], "{:.1%}")),
            Cell(one["convergence"] or NOTHING),
            Cell(one["verdict"], kind=KINDS[one["verdict"]], said=[f"{whose}{', '.join(told)}"]),
            Cell(day_of(one["run_started"]), said=[f"init {init}"]),
        )  # fmt: skip
        rows.append(Row(cells))
    return rows


def runs_table(
    frame: pandas.DataFrame,
    runs: Sequence[ReportedRun],
    names: Sequence[str],
    judgement: Judgement,
    beside: Path | None,
) -> Table:
    """Return a row per run, below the name of its system if there are several.

    Links to the logs of packages are relative to ``beside``, the folder of the page; with None there are no links.
    """
    several, coloured = len(names) > 1, len({run.group for run in runs}) <= COLOURS
    with_files = [bool(system.result_set.files) for system in judgement.systems]
    records = [
        record
        for record, system in zip(records_of(frame), frame.index, strict=True)
        if system < len(with_files) and with_files[system]
    ]
    rows: list[Row] = []
    before = -1
    for run, one in zip(runs, records, strict=True):
        if several and run.system != before:
            system = judgement.systems[run.system]
            links = [(path.name, link(path, beside)) for path in system.result_set.files] if beside else []
            swatch = f"run-{run.group}" if coloured else ""
            cell = Cell(names[run.system], said=[_devices(one)], swatch=swatch, links=links)
            rows.append(Row([cell], id=f"system-{run.system}", look="of"))
        before = run.system
        last = run.summary.evaluations[-1].log_perplexity if run.summary.evaluations else None
        cells = (
            run.name,
            day_of(one["run_started"]),
            ", ".join(map(str, run.summary.seeds)) or NOTHING,
            took(one["minutes"]),
            number(one["tokens"], "{:,.0f}"),
            str(one["evaluations"]),
            perplexity(last, run.recorded.target),
            one["status"] or NOTHING,
        )
        swatches = {0: f"run-{run.group}" if coloured and not several else ""}
        rows.append(Row([Cell(text, swatch=swatches.get(place, "")) for place, text in enumerate(cells)]))
    return Table("The runs", RUN_HEAD, rows, numbers=(2, 3, 4, 5, 6), look="runs cards")


def _devices(one: Record) -> str:
    if one["accelerators_count"] is None:
        return NOTHING
    return f"{one['accelerators_count']:,} x {shortened(one['accelerator_model_name'] or '?', 60)}"


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


def link(path: Path, beside: Path) -> str:
    """Return a relative link from a folder to a file, with every odd character encoded."""
    return "./" + quote(os.path.relpath(path, beside), errors="surrogateescape")


def changes_table(systems: Sequence[ReviewedSystem], names: Sequence[str], before: Sequence[ReviewedSystem]) -> Table:
    """Return a row for each system, compared with the same system in another round, then a row for each system that is
    gone.

    A system is compared with that of the same package and folder. Otherwise it is compared with a system of the same
    package that has as many accelerators of the same model and no namesake.
    """
    left = list(before)
    folders = Counter(one.result_set.name for one in before)
    partners: dict[int, tuple[str, ReviewedSystem]] = {}
    for kind, key in (("same", _namesake), ("successor", _successor)):
        for place, system in enumerate(systems):
            found = next((one for one in left if None not in key(one) and key(one) == key(system)), None)
            if place not in partners and found is not None:
                partners[place] = kind, found
                left.remove(found)

    def name_of(one: ReviewedSystem) -> str:
        folder, package = one.result_set.name, one.result_set.package
        return folder if folders[folder] < 2 or package is None else f"{package}/{folder}"

    rows = []
    for place, (system, name) in enumerate(zip(systems, names, strict=True)):
        now = system.score.minutes
        kind, other = partners.get(place, ("new", None))
        was = None if other is None else other.score.minutes
        told = NOTHING if other is None else f"{name_of(other)}, v{other.round}"
        ratio = f"{now / was - 1:+.1%}" if now and was else NOTHING
        texts = (name, kind, told, number(was, "{:.2f}"), number(now, "{:.2f}"), ratio)
        more = [] if other is None else list(_others(system, other))
        rows.append(Row([*map(Cell, texts), Cell("", said=more)]))
    for one in left:
        gone = (name_of(one), "gone", f"{name_of(one)}, v{one.round}", number(one.score.minutes, "{:.2f}"))
        rows.append(Row([*map(Cell, gone), Cell(), Cell(), Cell("")]))
    return Table(
        "Changes", CHANGE_HEAD, rows, numbers=(3, 4, 5), look="changes cards", title="Since the previous round",
        sortable=len(rows) > 2,
    )  # fmt: skip


def _namesake(one: ReviewedSystem) -> tuple[object, ...]:
    return one.result_set.package or "", one.result_set.name


def _successor(one: ReviewedSystem) -> tuple[object, ...]:
    model = accelerator_named(one.score.accelerator or "") or one.score.accelerator
    return one.result_set.package or "", one.score.accelerators, model


def _others(system: ReviewedSystem, other: ReviewedSystem) -> Iterator[str]:
    """Yield the other changes. Only rules of our own count: the official checkers did not judge the other round."""
    for title, now, was in (
        ("batch size", number(system.score.batch_size, "{:,.0f}"), number(other.score.batch_size, "{:,.0f}")),
        ("convergence", system.result_set.convergence.standing, other.result_set.convergence.standing),
        ("errors", len(system.findings("error")), len(other.findings("error"))),
    ):
        if now != was:
            yield f"{title} {was}, now {now}"
