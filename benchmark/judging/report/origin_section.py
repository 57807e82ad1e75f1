"""Show the origin of a page's runs: system, log, configuration, data, checkpoint, code."""

from collections.abc import Callable, Mapping, Sequence

from benchmark.judging.report.judgement import Judgement, ReportedRun
from benchmark.judging.report.page_parts import NOTHING, Cell, Row, Section, Table
from benchmark.judging.results.recorded_run import settings
from foundation.plain_text import shortened

MOST_VALUES = 4
MOST_TEXT = 500
DEEPEST = 8
"""Depth of a nested value below which it is not shown."""
MOST_UNFOLDED = 6
"""Most columns of an open table; a wider table is folded away."""
LEFT_OUT = ("submitter", "division", "status", "system_name")
"""Fields of a description that the table of systems already shows."""
OPERATION = (
    "device", "nodes", "devices per node", "start limit s", "hang floor s", "device mtbf hours", "accelerator",
)  # fmt: skip
"""Settings of the launcher, which do not change the training, and settings shown with the devices."""
Facts = Mapping[str, object]


def origin_section(runs: Sequence[ReportedRun], names: Sequence[str], judgement: Judgement) -> Section:
    """Return a table for each kind of origin, with a column per run, or per system if there are several."""
    several = len(names) > 1
    columns = names if several else [run.name for run in runs] if len(runs) > 1 else []
    descriptions = [system.result_set.system for system in judgement.systems]
    contents = [{} if description is None else description.content for description in descriptions]
    tables = [_table("System", names if several else [], [_of_description(content) for content in contents])]
    readers: tuple[tuple[str, Callable[[ReportedRun], Facts]], ...] = (
        ("Log", _of_log),
        ("Configuration", _of_configuration),
        ("Data and checkpoint", _of_inputs),
        ("Code and environment", lambda run: run.recorded.environment),
    )
    for title, of_run in readers:
        facts: list[Facts] = [of_run(run) for run in runs]
        if several:
            facts = [_together([of_run(run) for run in runs if run.system == index]) for index in range(len(names))]
        tables.append(_table(title, columns, facts))
    return Section("origin", "Origin", [table for table in tables if table.rows], grid="" if columns else "grid wide")


def _table(title: str, columns: Sequence[str], facts: Sequence[Facts]) -> Table:
    """Return a row per name in any column; a value that all columns share is shown once."""
    rows = []
    for name in dict.fromkeys(name for fact in facts for name in fact):
        values = [shortened(_words(fact.get(name)), MOST_TEXT) for fact in facts]
        if all(value == NOTHING for value in values):
            continue
        shared = values[:1] if len(set(values)) == 1 else values
        rows.append(Row([Cell(shortened(name, 60)), *map(Cell, shared)]))
    head, look = (["", *columns], "pairs many") if columns else ((), "pairs")
    folded = len(columns) > MOST_UNFOLDED
    return Table(title, head, rows, look=look, title="" if folded else title, summary=title if folded else "")


def _words(value: object, depth: int = 0) -> str:
    """Return a value as a person writes it: no empty text, no braces, no needless fraction."""
    if depth > DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(item, depth + 1)}" for name, item in value.items()) or NOTHING
    if isinstance(value, list | tuple):
        return ", ".join(_words(item, depth + 1) for item in value) or NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:g}"
    return NOTHING if value in (None, "") else str(value)


def _together(facts: Sequence[Facts]) -> Facts:
    """Return the values that several runs of a system have, each value once."""
    merged: dict[str, object] = {}
    for name in dict.fromkeys(name for fact in facts for name in fact):
        values = list(dict.fromkeys(_words(fact[name]) for fact in facts if name in fact))
        merged[name] = "; ".join(values[:MOST_VALUES]) + (" …" if len(values) > MOST_VALUES else "")
    return merged


def _of_description(described: Facts) -> Facts:
    return {str(name).replace("_", " "): value for name, value in described.items() if name not in LEFT_OUT}


def _of_log(run: ReportedRun) -> Facts:
    summary, log = run.summary, run.summary.log
    return {
        "file": str(run.recorded.path),
        "size": f"{log.size_bytes:,} bytes, {log.num_lines:,} lines, {len(log.events):,} events",
        "submitter": summary.org,
        "platform": summary.platform,
        "benchmark": summary.benchmark,
        "division": summary.division,
        "status": log.text("submission_status"),
        "seeds": ", ".join(map(str, summary.seeds)),
    }


def _of_configuration(run: ReportedRun) -> Facts:
    system = run.recorded.config.get("system", {})
    nodes, devices_per_node = system.get("nodes"), system.get("devices_per_node")
    devices = (
        {}
        if nodes is None
        else {"devices": f"{nodes} x {devices_per_node} {system.get('accelerator') or system.get('device')}"}
    )
    return {**devices, **{name: value for name, value in settings(run.recorded).items() if name not in OPERATION}}


def _of_inputs(run: ReportedRun) -> Facts:
    """Return the MD5 of each input by name."""
    digests = run.recorded.digests
    return {name: "no manifest" if digest is None else f"MD5 {digest}" for name, digest in digests.items()}
