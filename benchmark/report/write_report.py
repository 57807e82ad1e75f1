"""``report``: runs as one HTML file that needs nothing else.

Whatever stands in a log is a stranger's: it reaches the page escaped by the template, or as JSON that cannot end its
element, and a content security policy lets no script and no style run but the ones whose hashes the page was made with.
"""

import base64
import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from benchmark.report.figures import Figure, figures
from benchmark.report.judgement import judge
from benchmark.report.page_content import make_page
from benchmark.report.page_model import Page
from benchmark.report.reference_runs import reference_band
from benchmark.report.step_speed import speed_of
from benchmark.report.timeline import timeline
from benchmark.results.recorded_run import read_recorded_run
from stage.errors import InputError
from stage.publish import write_text

HERE = Path(__file__).parent
PAGE, VENDOR = HERE / "template", HERE / "vendor"


def write_report(paths: Sequence[Path], output: Path, *, ruleset: str | None = None) -> str:
    """Write the page about folders of runs or of results, or result files; returns what it says in a line.

    Raises InputError where there is nothing to report on, or ``output`` is a folder.
    """
    if output.is_dir():
        raise InputError(f"{output}: a folder; --output is the HTML file to write")
    page = report_on([result for path in paths for result in _results_in(path)], ruleset)
    text = render(page)
    write_text(output, text)
    return f"{output}: {page.headline}; {page.verdict.word.lower()}; {len(text.encode()) / 1000:,.0f} kB"


def report_on(paths: Sequence[Path], ruleset: str | None) -> Page:
    """The page about folders of runs, or result files. Raises InputError where there is none."""
    if not paths:
        raise InputError("nothing to report on; give folders of runs, or result files (see --help)")
    runs = [read_recorded_run(path) for path in paths]
    judgement = judge([run.path for run in runs], ruleset)
    speeds = [speed_of(run, judgement.score_of(run.path)) for run in runs]
    timelines = [timeline(run) for run in runs]
    band = reference_band([run.summary for run in runs], judgement.rulesets[-1])
    drawn = figures(runs, timelines, speeds, band)
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    footer = (
        f"Made {made} by python -m benchmark report. Figures: uPlot 1.6.32 (MIT licence). Times by the logs' clocks."
    )
    return make_page(runs, distinct_names(paths), timelines, drawn, judgement, footer)


def _results_in(path: Path) -> list[Path]:
    """A folder of several results stands for them; the folder of a run, and a file, for themselves."""
    found = sorted(path.glob("result_*.txt")) if path.is_dir() else []
    return found if len(found) > 1 else [path]


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """As much of the end of each path as tells them apart."""
    parts = [path.resolve().parts for path in paths]
    for count in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {path.name}" for number, path in enumerate(paths)]


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


def _caption(figure: Figure, page: Page) -> str:
    """The figure in words."""
    first = figure.lines[0]
    unit = f"{figure.y_label}, against {figure.x_label}"
    if len(page.runs) > 1:
        return f"{unit}; {len(figure.lines)} runs."
    if figure.from_zero:
        ordered = sorted(first.values)
        return f"{unit}; median {ordered[len(ordered) // 2]:.4g}, {ordered[0]:.4g} to {ordered[-1]:.4g}."
    return f"{unit}; from {first.values[0]:.5g} to {first.values[-1]:.5g}."
