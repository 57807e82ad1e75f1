"""Write ``report``: runs as one HTML file that needs no other file.

Every text of a log comes from a stranger. It reaches the page escaped by the template, or as JSON that cannot end its
element. A content security policy allows only the scripts and styles whose hashes the page contains.
"""

import base64
import hashlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from benchmark.judging.report.judgement import Judgement, judge
from benchmark.judging.report.page_content import LEFT_OUT, make_page
from benchmark.judging.report.page_parts import CAUTION, Figure, Page, perplexity
from benchmark.judging.review.verdict import Review
from foundation.errors import InputError
from foundation.outputs.publish import write_text
from foundation.sizes import significant

HERE = Path(__file__).parent
PAGE, VENDOR = HERE / "template", HERE / "vendor"


def write_report(
    paths: Sequence[Path],
    output: Path,
    ruleset: str | None = None,
    previous: Path | None = None,
    plan: Path | None = None,
) -> str:
    """Write the page about runs, packages or rounds; return one line about it, and one about each folder left out.

    Raises InputError if there is nothing to report on, or if ``output`` is a folder.
    """
    write = page_writer(output, ruleset, previous, plan)
    return write(judge(paths, ruleset))


def page_writer(
    output: Path, ruleset: str | None = None, previous: Path | None = None, plan: Path | None = None
) -> Callable[[Review | Judgement], str]:
    """Return a function that writes the page of a review.

    The page shows the changes since ``previous``, another round or an earlier version of this one, and compares
    ``plan``, the JSON of a plan, with the measurements of one run. Raises InputError for an ``output`` that is a
    folder, and for a previous round without results.
    """
    if output.is_dir():
        raise InputError(f"{output}: a folder; give the HTML file to write")
    previous_systems = None if previous is None else judge([previous], ruleset, official=False).systems

    def write(review: Review | Judgement) -> str:
        packaged = any(subject.kind == "package" for subject in review.subjects)
        page_folder = output.absolute().parent if packaged else None
        judgement = review if isinstance(review, Judgement) else Judgement(review.subjects)
        page = make_page(judgement, previous_systems, plan, page_folder)
        text = render(page)
        write_text(output, text)
        line = f"{output}: {page.headline}; {page.verdict[2].lower()}; {len(text.encode()) / 1000:,.0f} kB"
        return "\n".join([*(f"{folder}: {LEFT_OUT}" for folder in judgement.empty_folders), line])

    return write


def render(page: Page) -> str:
    """Return the HTML of a page."""
    environment = Environment(
        loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=visible,
    )  # fmt: skip
    styles = {"uplot_css": _page_source(VENDOR / "uPlot.min.css"), "css": _page_source(PAGE / "report.css")}
    scripts = {"uplot_js": _page_source(VENDOR / "uPlot.iife.min.js"), "js": _page_source(PAGE / "figures.js")}
    scripts["tables_js"] = _page_source(PAGE / "tables.js")
    return environment.get_template("report.html.j2").render(
        report=page,
        captions={figure.name: _caption(figure) for figure in page.figures},
        families=_families(page.figures),
        figure_data=all_visible({"runs": page.runs, "figures": msgspec.to_builtins(page.figures)}),
        style_hashes=_hashes(styles),
        script_hashes=_hashes(scripts),
        **styles,
        **scripts,
    )


def visible(value: Any) -> Any:
    """Return a text of the page with a question mark for each invisible character: controls of a terminal, and marks
    that change the direction of text. Our HTML, and values that are no texts, stay as they are."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(
        letter if letter.isprintable() or unicodedata.category(letter) == "Zs" else " " if letter in "\t\r\n" else "?"
        for letter in value
    )


def all_visible(value: Any) -> Any:
    """Return a JSON value with its texts as :func:`visible` returns them."""
    if isinstance(value, dict):
        return {name: all_visible(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return value if all(isinstance(content, float) for content in value) else [*map(all_visible, value)]
    return visible(value)


def _page_source(path: Path) -> Markup:
    """Return a file of ours, the only kind that enters the page unescaped."""
    return Markup(path.read_text(encoding="utf-8").strip())


def _hashes(texts: Mapping[str, str]) -> Markup:
    """Return the sources of a content security policy: the SHA-256 of each inline text."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts.values()]
    return Markup(" ".join(f"'sha256-{digest}'" for digest in digests))


def _families(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    """Return figures, and the panels of divided figures, by the figure's name."""
    families: dict[str, list[Figure]] = {}
    for figure in figures:
        families.setdefault(figure.family or figure.name, []).append(figure)
    return families


def _caption(figure: Figure) -> str:
    """Return the figure in words."""
    unit = f"{figure.y_label}, against {figure.x_label}"
    end = "".join(f" {note}" for note in (CAUTION if figure.name.startswith("mfu") else "", figure.note) if note)
    if figure.family:
        return f"{unit}; one scale for all; grey: the lines of the other panels.{end}"
    if len(figure.lines) > 1:
        return f"{unit}; {len(figure.lines)} runs.{end}"
    values = [value for _, value in figure.lines[0].points]
    if figure.from_zero:
        values.sort()
        median, low, high = (significant(value, 4) for value in (values[len(values) // 2], values[0], values[-1]))
        return f"{unit}; median {median}, {low} to {high}.{end}"
    low, high = (perplexity(value, figure.target, "{:.5g}") for value in (values[0], values[-1]))
    return f"{unit}; from {low} to {high}.{end}"
