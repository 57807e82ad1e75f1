"""The page as a browser shows it, and as text where no browser is needed."""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmark.commands.command_table import parse
from benchmark.judging.report import judgement
from benchmark.judging.report.write_report import write_report
from benchmark.judging.review import review_screen
from foundation.errors import InputError
from tests.benchmark.judging.report.made_pages import own_review, write_made
from tests.benchmark.judging.report.runs import write_run
from tests.benchmark.judging.review.fixture import records, write_package
from tests.benchmark.run_record.status.supervised_run import SupervisedRun
from tests.chromium import PROGRAM, Browser, headless

needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="no chromium here: apt install chromium")
HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>\"'&"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with headless(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    output = folder / "report.html"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as said:
        patch.setattr(judgement, "review", own_review)
        assert parse(["report", str(write_run(folder / "run_0")), "--output", str(output)]).run() == 0
    size = f"{len(output.read_bytes()) / 1000:,.0f} kB"
    assert said.getvalue() == f"{output}: Target 2.44 reached in 11.00 s; review failed; {size}\n"
    return output


def key_figures(browser: Browser) -> dict[str, str]:
    pairs = "[...document.querySelectorAll('.key-figures div')].map((d) => [...d.children].map((c) => c.innerText))"
    return dict(browser.value(pairs))


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_numbers_are_shown_at_any_width_without_complaints(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width, dark=dark)
    assert browser.text("h1") == "Target 2.44 reached in 11.00 s"
    shown = key_figures(browser)
    assert shown["Tokens"] == "24,576"
    assert shown["Last log perplexity"].split() == ["2.43000", "nats"]
    assert shown["Throughput"].split() == ["2,234", "tokens/s"]
    drawn = browser.value(
        "[...document.querySelectorAll('.plot')].filter((p) => p.querySelector('canvas')).map((p) => p.dataset.figure)"
    )
    assert drawn == ["accuracy", "loss", "learning_rate", "grad_norm", "step_time", "tflops"]
    assert browser.value("document.documentElement.scrollWidth") <= width
    wide = "[...document.querySelectorAll('canvas')].every((c) => c.getBoundingClientRect().right <= innerWidth)"
    assert browser.value(wide) is True
    brightness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    assert (max(browser.value(brightness)) < 64) is dark
    assert browser.complaints == []


@needs_chromium
def test_strangers_texts_are_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    supervised = SupervisedRun(tmp_path / "run_1")
    supervised.launch()
    supervised.step()
    supervised.incident("exception", HOSTILE, phase=HOSTILE)
    supervised.ended(70, HOSTILE, f"{HOSTILE}\x1b[2J")
    supervised.launch()
    supervised.step()
    run = write_run(tmp_path / "run", submission_org=HOSTILE, submission_platform=HOSTILE, seed=HOSTILE)
    odd = run.rename(tmp_path / "<img src=x onerror=alert(1)>")
    page = write_made(tmp_path / "report.html", [odd, supervised.finish()])
    browser.open(page, 1280)
    assert browser.value("window.broken") is None
    assert browser.value("document.images.length") == 0
    assert HOSTILE in browser.text(".kicker")
    assert "<img src=x onerror=alert(1)>" in browser.text("#accuracy .u-legend")
    assert f"{HOSTILE}?[2J" in browser.text(".attempts .said")
    assert "\x1b" not in page.read_text()
    assert browser.complaints == []


@needs_chromium
def test_runs_overlay(browser: Browser, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"run_{number}", (5.5, 2.5 + number / 10, 2.43)) for number in range(3)]
    browser.open(write_made(tmp_path / "report.html", runs), 1280)
    rows = browser.value(
        "[...document.querySelectorAll('.runs tbody tr')].map((r) => [...r.children].map((c) => c.innerText))"
    )
    assert [row[0] for row in rows] == ["run_0", "run_1", "run_2"]
    assert {row[3] for row in rows} == {"11.00 s"}
    assert browser.value("[...document.querySelectorAll('#accuracy .sample line')].length") == 3
    assert browser.value("document.querySelectorAll('#accuracy .u-series').length") == 4
    labels = (
        "[...document.querySelectorAll('#{} .u-series')].slice(1).map((row) => [row.children[0].innerText, row.title])"
    )
    names = ["run_0", "run_1", "run_2"]
    assert browser.value(labels.format("accuracy")) == [[name, ""] for name in names]
    assert browser.value(labels.format("loss")) == [["", name] for name in names]
    browser.show_as_printed()
    visible = "[...document.querySelectorAll('#loss .u-series .u-label')].slice(1).map((e) => e.checkVisibility())"
    assert browser.value(visible) == [True] * 3
    cells = browser.value("[...document.querySelectorAll('details tbody tr')[1].children].map((c) => c.textContent)")
    assert cells == ["16,384", "2.50000", "2.60000", "2.70000"]
    assert browser.complaints == []


OVERPRINTED = """
[...document.querySelectorAll(".chart")].filter((chart) => {
  const parts = [...chart.querySelectorAll("figcaption, h4, .u-wrap, .u-legend tr")];
  const boxes = parts.map((one) => one.getBoundingClientRect());
  const below = chart.parentElement.nextElementSibling, next = chart.nextElementSibling || below;
  if (next) boxes.push(next.getBoundingClientRect());
  return boxes.some((a, i) => boxes.some((b, j) => i < j && a.width && b.width && a.left < b.right - 1
    && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1));
}).map((chart) => chart.id)
"""
"""Figures of which one part lies over another, or over what follows."""
NARROW_LABELS = """
[...document.querySelectorAll("th, td, dt, dd, h3, h4")].filter((one) => one.innerText.length > 4
  && one.getBoundingClientRect().width < 40 && one.getBoundingClientRect().width > 0).map((one) => one.innerText)
"""
"""Texts that a column has no room for."""


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize(("systems", "width"), [(3, 1280), (3, 390), (8, 390)])
def test_systems_are_compared_at_any_width(browser: Browser, tmp_path: Path, systems: int, width: int) -> None:
    packages = []
    for number in range(systems):
        made = write_package(tmp_path, partial(records, evaluations=24 + number))
        packages.append(made.rename(tmp_path / f"P{number}"))
    page = write_made(tmp_path / "report.html", packages)
    browser.open(page, width)
    assert browser.value("document.documentElement.scrollWidth") <= width
    table = "(e = document.querySelector('.convergence').parentElement, [e.className, e.scrollWidth - e.clientWidth])"
    assert browser.value(table) == ["scroll", 0]
    assert browser.value(OVERPRINTED) == []
    assert browser.value(NARROW_LABELS) == []
    names = "[...document.querySelectorAll('.systems tbody tr:not([hidden]) a')].map((a) => a.innerText)"
    assert browser.value(names) == [f"acme_h100x512, P{number}" for number in range(systems)]
    browser.value("document.querySelectorAll('.systems th button')[1].click(), 0")
    browser.value("document.querySelectorAll('.systems th button')[1].click(), 0")
    assert browser.value(names) == [f"acme_h100x512, P{number}" for number in reversed(range(systems))]
    browser.value("f = document.querySelector('input'), f.value = 'p1', f.dispatchEvent(new Event('input')), 0")
    assert browser.value(names) == ["acme_h100x512, P1"]
    assert browser.value("document.querySelectorAll('.runs tr:not(.of) th[scope=row]').length") == 3 * systems
    colours = browser.value(
        "(({runs, figures}) => figures.map((f) => [f.family, new Set(f.lines.map((l) => runs[l.run][1])).size]))("
        "JSON.parse(document.getElementById('figures').textContent))"
    )
    whole = [count for family, count in colours if not family]
    assert (whole == []) is (systems > 6)
    assert set(whole) <= {systems}
    assert browser.complaints == []
    links = browser.value("[...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))")
    for target in links:
        assert target.startswith("#system-") or (tmp_path / target).is_file()


def test_review_of_a_round_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review_screen, "review", own_review)
    folder = tmp_path / "training_results_v4.1"
    folder.mkdir()
    write_package(tmp_path).rename(folder / "A")
    (folder / "BROKEN" / "results").mkdir(parents=True)
    page = tmp_path / "round.html"
    assert parse(["review", str(folder), "--html", str(page), "--previous", str(folder / "A")]).run() == 1
    text = page.read_text()
    assert "Since the previous round" in text
    assert "BROKEN" in text
    assert 'href="#system-0"' in text
    empty = tmp_path / "empty"
    empty.mkdir()
    page.unlink()
    with pytest.raises(InputError, match=f"^{empty}: "):
        parse(["review", str(folder), "--html", str(page), "--previous", str(empty)]).run()
    assert not page.exists()
    with pytest.raises(InputError, match="--previous is told on the page that --html writes"):
        parse(["review", str(folder), "--previous", str(folder)]).run()
    with pytest.raises(InputError, match="a folder; give the HTML file to write"):
        parse(["review", str(folder), "--html", str(tmp_path)]).run()


@pytest.mark.parametrize("unseen", ["\x1b[2J", "\u202e", "\u2066", "\u200f", "\u200b", "\x07", "\x9b31m"])
def test_characters_that_are_not_seen_reach_no_page(tmp_path: Path, unseen: str) -> None:
    text = f"a{unseen}b"
    supervised = SupervisedRun(tmp_path / f"supervised{unseen}")
    supervised.launch()
    supervised.step()
    supervised.incident("exception", text, phase=text)
    supervised.ended(70, text, text)
    folder = write_run(tmp_path / text, submission_org=text, submission_platform=text, seed=text, opt_name=text)
    environment = {"time_ms": 1, "key": "environment", "value": {text: text}}
    with (folder / "events.jsonl").open("a") as events:
        events.write(json.dumps(environment) + "\n")
    page = write_made(tmp_path / "report.html", [folder, supervised.finish()]).read_text()
    data = json.loads(re.search(r'id="figures">(.*?)</script>', page, flags=re.DOTALL)[1])  # type: ignore[index]
    assert {letter for letter in page if not letter.isprintable()} <= {"\n", "\t", "\N{NO-BREAK SPACE}"}
    assert all(name.isprintable() for name, *_ in data["runs"])
    assert f"a?{unseen[1:]}b" in page


def test_page_needs_nothing_else_and_carries_its_data(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"(?:src|href)=(\S+)", text.split("<script", 1)[0]) == ['"data:,">']
    assert "://" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    data = json.loads(re.search(r'id="figures">(.*?)</script>', text, flags=re.DOTALL)[1])  # type: ignore[index]
    accuracy = data["figures"][0]
    assert accuracy["lines"] == [{"run": 0, "x": [8192, 16384, 24576], "y": [5.5, 3.5, 2.43]}]
    assert data["runs"] == [["run_0", 0, 0]]
    assert accuracy["target"] == 2.44
    assert accuracy["band"]["low"] < accuracy["band"]["high"]
    assert len(text.encode()) < 150_000


def test_bad_usage_is_one_line(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    output = tmp_path / "r.html"
    for paths, file, ruleset, complaint in (
        ([tmp_path / "none"], output, None, "none: no such file or folder; give a result file, a run folder or a pac"),
        ([run], tmp_path, None, "a folder; give the HTML file"),
        ([], output, None, "no results given; name"),
        ([run], output, "5.0.0", r"--ruleset 5\.0\.0: gpt3_rehearsal is in 3\.0\.0, 3\.1\.0, 4\.0\.0, 4\.1\.0 only"),
    ):
        with pytest.raises(InputError, match=complaint):
            write_report(paths, file, ruleset)
    assert not output.exists()
