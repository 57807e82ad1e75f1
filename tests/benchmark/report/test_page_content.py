"""The sentences and key figures of the page."""

from pathlib import Path

from benchmark.review.official_tools import ToolVerdict
from tests.benchmark.report.made_pages import made_page
from tests.benchmark.report.runs import MadeRun, write_run
from tests.benchmark.review.fixture import ORG, SYSTEM, records, write_package
from tests.benchmark.review.fixture import write_run as write_log


def headline(path: Path) -> str:
    return made_page([path]).headline


def test_result_of_three_runs(tmp_path: Path) -> None:
    results = write_package(tmp_path, lambda seed: records(seed, evaluations=23)) / "results" / SYSTEM / "gpt3"
    (results / "scaling.json").write_text('{"scaling_factor": 1.0174}')
    page = made_page([results])
    figures = {figure.name: figure for figure in page.key_figures}
    assert page.headline == f"Score {figures['Score'].value} minutes"
    assert page.title == f"{page.headline}: result_0, result_1, result_2"
    assert page.subject == "ACME · ACME-H100-n64 · gpt3 · result_0, result_1, result_2"
    assert figures["Score"].note.endswith(" min x 1.0174")
    assert (figures["Accelerators"].value, figures["Accelerators"].note) == ("512", "NVIDIA H100-SXM5-80GB")
    assert "of 989 TFLOP/s, whole run. MFU is of the dense BF16 peak: FP8" in figures["MFU"].note
    assert figures["Last log perplexity"].note.startswith("median of 3, 2.68")
    assert "Run time" not in figures
    assert page.verdict.text.startswith("under ruleset 4.1.0: 1 of 1 official checks passed; 0 errors, ")
    assert page.verdict.word == "Review passed"
    assert page.systems == []
    assert [row.standing for row in page.convergence] == ["passes, scaled"]


def test_systems_are_never_mixed(tmp_path: Path) -> None:
    """A median over two systems is the time of neither."""
    fast = write_package(tmp_path / "a").rename(tmp_path / "a" / "FAST")
    slow = write_package(tmp_path / "b", lambda seed: records(seed, evaluations=26)).rename(tmp_path / "b" / "SLOW")
    page = made_page([slow, fast])
    assert page.key_figures == []
    assert [(row.place, row.submitter) for row in page.systems] == [(1, "FAST"), (0, "SLOW")]
    assert page.headline == f"2 systems: {page.systems[0].score} to {page.systems[1].score} minutes"
    assert len({row.score for row in page.systems}) == 2
    assert [row.system for row in page.runs] == [0, 0, 0, 1, 1, 1]
    assert [row.colour for row in page.runs] == [0, 0, 0, 1, 1, 1]
    groups = {group.title: group for group in page.origin}
    assert groups["Configuration"].columns == [f"{SYSTEM}, SLOW", f"{SYSTEM}, FAST"]
    assert dict(groups["System"].rows)["accelerator model name"] == ["NVIDIA H100-SXM5-80GB"] * 2


def test_warnings_stand_once(tmp_path: Path) -> None:
    runs = [
        write_log(tmp_path / str(seed), [one for one in records(seed) if one["key"] != "seed"]) for seed in (1, 2, 3)
    ]
    findings = [row for row in made_page(runs).findings if row.rule == "seed.logged"]
    assert len(findings) == 1
    assert len(findings[0].places) == 3


def test_offending_line_is_shown(tmp_path: Path) -> None:
    run = records(1)
    next(one for one in run if one["key"] == "opt_name")["value"] = "<b>sgd</b>"
    findings = made_page([write_log(tmp_path / "run", run)]).findings
    assert any('"value": "<b>sgd</b>"' in row.text for row in findings)


def test_headlines(tmp_path: Path) -> None:
    assert headline(write_run(tmp_path / "a")) == "Target 2.44 reached in 11.0 seconds"
    assert headline(write_run(tmp_path / "b", (5.5, 3.5))) == "Target 2.44 not reached"
    assert headline(write_run(tmp_path / "c", submission_benchmark="bert")) == "No known benchmark"
    run = write_run(tmp_path / "d")
    (run / "config.json").write_text('{"result_number": 0, "benchmark": {"target_log_perplexity": null}}')
    assert headline(run) == "Log perplexity 2.4300; the run had no target"
    (run / "result_0.txt").write_text("nothing")
    assert headline(run) == "No MLPerf log"
    both = made_page([tmp_path / "a", tmp_path / "b"])
    assert both.headline == "1 of 2 runs reached the target"


def test_value_just_above_the_target_is_not_rounded_onto_it(tmp_path: Path) -> None:
    page = made_page([write_run(tmp_path / "a", (5.5, 2.4400000000000004))])
    assert page.headline == "Target 2.44 not reached"
    assert page.runs[0].last == "2.4400000000000004"
    assert page.evaluations[-1] == ("16,384", ["2.4400000000000004"])
    assert {one.name: one.value for one in page.key_figures}["Last log perplexity"] == "2.4400000000000004"
    assert page.figures[0].lines[0].y[-1] == 2.4400000000000004


def test_restarts_are_counted(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.begin()
    made.step()
    made.restart(steps=1, waiting=5.0)
    figures = {figure.name: figure.value for figure in made_page([made.end()]).key_figures}
    assert figures["Restarts"] == "1"


def test_paths_are_told_by_the_names_on_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    log = run / "result_0.txt"
    check = ToolVerdict("compliance", str(log), "failed", (f"{log}: wrong",), ("a note",), 0.1)
    page = made_page([run], check)
    assert [(row.tool, row.subject, row.kind, row.verdict) for row in page.checks] == [
        ("compliance", "run", "bad", "failed")
    ]
    assert page.checks[0].said == ["run: wrong", "a note"]
    assert page.findings
    assert not any(str(tmp_path) in place for finding in page.findings for place in finding.places)
    assert (page.verdict.kind, page.verdict.sign, page.verdict.word) == ("bad", "✗", "Review failed")


def test_passed_checks_take_a_line_for_each_tool(tmp_path: Path) -> None:
    first = write_package(tmp_path).rename(tmp_path / "A")
    second = write_package(tmp_path).rename(tmp_path / "B")
    page = made_page([first, second])
    assert [(row.tool, row.subject, row.verdict) for row in page.checks] == [("compliance", "2 of 2", "passed")]
    assert ORG not in page.checks[0].subject
