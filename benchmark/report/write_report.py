"""``report``: runs as one HTML file that needs nothing else.

Whatever stands in a log is a stranger's: it reaches the page escaped by the template, or as JSON that cannot end its
element, and a content security policy lets no script and no style run but the ones whose hashes the page was made with.
"""

import base64
import datetime
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from benchmark.report.comparing.curve_differences import differences
from benchmark.report.comparing.panels import coloured, in_panels
from benchmark.report.comparing.previous_round import changes
from benchmark.report.figures import Figure, figures
from benchmark.report.judgement import Judgement, judge
from benchmark.report.page_content import PageInput, make_page
from benchmark.report.page_model import Page
from benchmark.report.page_numbers import perplexity
from benchmark.report.planned_run import PLAN_FILE, PlannedShown, plan_beside, read_plan
from benchmark.report.reference_runs import reference_band
from benchmark.report.reported_run import COLOURS, ReportedRun, reported_runs, system_names
from benchmark.report.step_speed import speed_of
from benchmark.report.timeline import Timeline, timeline
from benchmark.results_table.reviewed_places import ReviewedPlace, read_places
from benchmark.results_table.row_facts import SystemFacts
from benchmark.review.verdict import Review
from stage.errors import InputError
from stage.outputs.publish import write_text

HERE = Path(__file__).parent
PAGE, VENDOR = HERE / "template", HERE / "vendor"


@dataclass(frozen=True)
class ReportOptions:
    """What ``report`` is asked for besides results and output."""

    ruleset: str | None = None
    previous: Path | None = None
    """A round, or an earlier version of this one, to tell changes from."""
    plan: Path | None = None
    """JSON of a plan, to put beside what one run measured."""


def write_report(paths: Sequence[Path], output: Path, options: ReportOptions | None = None) -> str:
    """Write the page about runs, packages or rounds; returns what it says in a line.

    Raises InputError where there is nothing to report on, or ``output`` is a folder.
    """
    require_file(output)
    return write_page(report_on(paths, options or ReportOptions(), output.absolute().parent), output)


def review_page(output: Path, options: ReportOptions) -> Callable[[Review], str]:
    """What makes the page of a review that is made elsewhere, afterwards.

    Raises InputError for an ``output`` that is a folder and a previous round without results.
    """
    require_file(output)
    before = systems_before(options)

    def write(found: Review) -> str:
        judgement = Judgement([ReviewedPlace(Path(one.path), Review((one,), 0.0)) for one in found.subjects])
        return write_page(page_of(judgement, options, before, output.absolute().parent), output)

    return write


def require_file(output: Path) -> None:
    """Raises InputError for a folder."""
    if output.is_dir():
        raise InputError(f"{output}: a folder; give the HTML file to write")


def write_page(page: Page, output: Path) -> str:
    text = render(page)
    write_text(output, text)
    return f"{output}: {page.headline}; {page.verdict.word.lower()}; {len(text.encode()) / 1000:,.0f} kB"


def report_on(paths: Sequence[Path], options: ReportOptions, beside: Path | None = None) -> Page:
    """The page about runs, packages or rounds, which will lie in ``beside``. Raises InputError for no results."""
    if not paths:
        raise InputError("nothing to report on; give folders of runs, result files, packages or rounds (see --help)")
    before = systems_before(options)
    return page_of(judge(paths, options.ruleset), options, before, beside)


def systems_before(options: ReportOptions) -> Sequence[SystemFacts] | None:
    """Those of the previous round; None where none is given. Raises InputError for one without results."""
    if options.previous is None:
        return None
    return Judgement(read_places([options.previous], options.ruleset)).systems


def page_of(
    judgement: Judgement, options: ReportOptions, before: Sequence[SystemFacts] | None, beside: Path | None = None
) -> Page:
    """The page about what was reviewed, and what changed since the systems ``before``."""
    runs, names = reported_runs(judgement), system_names(judgement)
    timelines = [timeline(run.recorded) for run in runs]
    packaged = any(subject.kind == "package" for subject in judgement.subjects)
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return make_page(
        PageInput(
            runs=runs,
            timelines=timelines,
            figures=_drawn(runs, names, timelines, judgement),
            judgement=judgement,
            names=names,
            footer=f"Made {made} by python -m benchmark report. Figures: uPlot 1.6.32 (MIT licence). "
            "Times by the logs' clocks.",
            beside=beside if packaged else None,
            changes=() if before is None else changes(judgement.systems, names, before),
            planned=_planned(runs, options.plan),
        )
    )


def _drawn(
    runs: Sequence[ReportedRun], names: Sequence[str], timelines: Sequence[Timeline], judgement: Judgement
) -> list[Figure]:
    recorded = [run.recorded for run in runs]
    if not runs:
        return []
    band = reference_band([run.summary for run in recorded], judgement.rulesets[-1])
    drawn = figures(recorded, timelines, [speed_of(run.recorded, run.score) for run in runs], band)
    accuracy = next((figure for figure in drawn if figure.name == "accuracy"), None)
    if accuracy is not None:
        found = differences(accuracy, [run.summary for run in recorded], [run.system for run in runs], names)
        drawn += [found] if found is not None else []
    groups = [run.group for run in runs]
    titles = list(names) if len(names) > 1 else [run.name for run in runs]
    return in_panels(coloured(drawn, groups, COLOURS), groups, titles, COLOURS)


def _planned(runs: Sequence[ReportedRun], plan: Path | None) -> PlannedShown | None:
    """The plan given, or that in the folder of the run, beside the run. Raises InputError for several runs."""
    if plan is not None and len(runs) != 1:
        raise InputError(f"--plan is put beside one run, there are {len(runs)}; report on one, or leave --plan out")
    if plan is None and len(runs) == 1 and runs[0].recorded.config:
        beside = runs[0].recorded.path.with_name(PLAN_FILE)
        plan = beside if beside.is_file() else None
    return None if plan is None else plan_beside(read_plan(plan), runs[0])


def render(page: Page) -> str:
    """The HTML of a page."""
    environment = Environment(
        loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    styles = {"uplot_css": _own(VENDOR / "uPlot.min.css"), "css": _own(PAGE / "report.css")}
    scripts = {"uplot_js": _own(VENDOR / "uPlot.iife.min.js"), "js": _own(PAGE / "figures.js")}
    return environment.get_template("report.html.j2").render(
        report=page,
        captions={figure.name: _caption(figure, page) for figure in page.figures},
        families=_families(page.figures),
        figure_data=_figure_data(page),
        style_hashes=_hashes(styles),
        script_hashes=_hashes(scripts),
        **styles,
        **scripts,
    )


def _own(path: Path) -> Markup:
    """A file of ours, which alone enters the page unescaped."""
    return Markup(path.read_text(encoding="utf-8").strip())


def _hashes(texts: Mapping[str, str]) -> Markup:
    """Sources of a content security policy: the SHA-256 of each inline text."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts.values()]
    return Markup(" ".join(f"'sha256-{digest}'" for digest in digests))


def _figure_data(page: Page) -> dict[str, Any]:
    return {"runs": [run.name for run in page.runs], "figures": [asdict(figure) for figure in page.figures]}


def _families(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    """Whole figures, and the panels of those that have some, by the name of the whole."""
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        found.setdefault(figure.family or figure.name, []).append(figure)
    return found


def _caption(figure: Figure, page: Page) -> str:
    """The figure in words."""
    unit = f"{figure.y_label}, against {figure.x_label}"
    notes = (page.caution if figure.name.startswith("mfu") else "", figure.note)
    end = "".join(f" {note}" for note in notes if note)
    if not figure.lines:
        return f"{unit}.{end}"
    first = figure.lines[0]
    if figure.family:
        return f"{unit}; one scale for all; grey: the others.{end}"
    if len(figure.lines) > 1:
        return f"{unit}; {len(figure.lines)} run{'' if len(figure.lines) == 1 else 's'}.{end}"
    if figure.from_zero:
        ordered = sorted(first.values)
        return f"{unit}; median {ordered[len(ordered) // 2]:.4g}, {ordered[0]:.4g} to {ordered[-1]:.4g}.{end}"
    low, high = (perplexity(one, figure.target, "{:.5g}") for one in (first.values[0], first.values[-1]))
    return f"{unit}; from {low} to {high}.{end}"
