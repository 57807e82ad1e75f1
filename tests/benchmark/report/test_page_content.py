"""The sentences and key figures of the page."""

from collections.abc import Sequence
from pathlib import Path

from benchmark.report.judgement import Judgement
from benchmark.report.page_content import make_page
from benchmark.report.page_model import Page
from benchmark.report.timeline import timeline
from benchmark.results.recorded_run import read_recorded_run
from benchmark.review.official_tools import ToolVerdict
from tests.benchmark.report.runs import MadeRun, write_run
from tests.benchmark.review.fixture import SYSTEM, records, write_package
from tests.benchmark.review.reviews import review_of, verdict


def page_of(paths: Sequence[Path], names: Sequence[str], check: ToolVerdict | None = None) -> Page:
    runs = [read_recorded_run(path) for path in paths]
    found = review_of([run.path for run in runs], check or verdict())
    judgement = Judgement(found, [score for subject in found.subjects for score in subject.scores])
    return make_page(runs, names, [timeline(run) for run in runs], [], judgement, "footer")


def headline(path: Path) -> str:
    return page_of([path], ["run"]).headline


def test_result_of_three_runs(tmp_path: Path) -> None:
    results = write_package(tmp_path, lambda seed: records(seed, evaluations=23)) / "results" / SYSTEM / "gpt3"
    page = page_of(sorted(results.iterdir()), ["a", "b", "c"])
    assert page.headline == "Score 50.70 minutes"
    assert page.title == "Score 50.70 minutes: a, b, c"
    assert page.subject == "ACME · ACME-H100-n64 · gpt3 · a, b, c"
    figures = {figure.name: figure for figure in page.key_figures}
    assert (figures["Score"].value, figures["Score"].note) == ("50.70", "49.83 min x 1.0174")
    assert (figures["Accelerators"].value, figures["Accelerators"].note) == ("512", "NVIDIA H100-SXM5-80GB")
    assert figures["MFU"].note.endswith("of 989 TFLOP/s, whole run")
    assert figures["Last log perplexity"].note.startswith("median of 3, 2.68")
    assert figures["Tokens"].note == ""
    assert "Run time" not in figures
    assert page.verdict.text == "under ruleset 4.1.0: 1 of 1 official checks passed; 0 errors, 0 warnings, 1 note."
    assert (page.verdict.kind, page.verdict.word) == ("good", "Review passed")


def test_headlines(tmp_path: Path) -> None:
    assert headline(write_run(tmp_path / "a")) == "Target 2.44 reached in 11.0 seconds"
    assert headline(write_run(tmp_path / "b", (5.5, 3.5))) == "Target 2.44 not reached"
    assert headline(write_run(tmp_path / "c", submission_benchmark="bert")) == "No known benchmark"
    run = write_run(tmp_path / "d")
    (run / "config.json").write_text('{"result_number": 0, "benchmark": {"target_log_perplexity": null}}')
    assert headline(run) == "Log perplexity 2.4300; the run had no target"
    (run / "result_0.txt").write_text("nothing")
    assert headline(run) == "No MLPerf log"
    both = page_of([tmp_path / "a", tmp_path / "b"], ["a", "b"])
    assert both.headline == "1 of 2 runs reached the target"


def test_restarts_are_counted(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.begin()
    made.step()
    made.restart(steps=1, waiting=5.0)
    figures = {figure.name: figure.value for figure in page_of([made.end()], ["run"]).key_figures}
    assert figures["Restarts"] == "1"


def test_paths_are_told_by_the_names_on_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    log = run / "result_0.txt"
    check = ToolVerdict("compliance", str(log), "failed", (f"{log}: wrong",), ("a note",), 0.1)
    page = page_of([run], ["run"], check)
    assert [(row.tool, row.subject, row.kind, row.verdict) for row in page.checks] == [
        ("compliance", "run", "bad", "failed")
    ]
    assert page.checks[0].said == ["run: wrong", "a note"]
    assert page.findings
    assert {finding.path for finding in page.findings} == {"run"}
    assert (page.verdict.kind, page.verdict.sign, page.verdict.word) == ("bad", "✗", "Review failed")
