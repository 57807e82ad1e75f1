"""Packages, runs and rounds reviewed together, and the table of their runs."""

import re
import shutil
from pathlib import Path

import pytest

from benchmark.commands.command_table import parse
from benchmark.judging.report import judgement
from benchmark.judging.report.judgement import Judgement, distinct_names, judge, system_names
from benchmark.judging.report.leaderboard import systems_tables
from benchmark.judging.report.results_table import TYPES, judged_frame, systems_text
from benchmark.judging.report.review_section import verdict_of
from benchmark.judging.report.write_report import write_report
from benchmark.judging.results.frames import csv_text, systems_frame
from benchmark.judging.review.review_screen import leaderboard
from foundation.errors import InputError
from tests.benchmark.judging.report.made_pages import judged, made_runs, own_review, write_round
from tests.benchmark.judging.report.runs import write_run
from tests.benchmark.judging.review.fixture import SYSTEM, as_text, records, write_package
from tests.support import REPOSITORY


def test_best_score_first_and_broken_packages_hide_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_round = write_round(
        tmp_path / "training_results_v4.1", ("A", "SLOW", "Z"), lambda a: shutil.rmtree(a / "results")
    )
    shutil.rmtree(one_round / "SLOW")
    write_package(tmp_path, lambda seed: records(seed, evaluations=26)).rename(one_round / "SLOW")
    found = judged([one_round, write_run(tmp_path / "run")])
    assert system_names(found) == [f"{SYSTEM}, Z", f"{SYSTEM}, SLOW", "run/result_0.txt"]
    assert [(path.name, why) for path, why in found.problems] == [("A", "no results in it that are reviewed")]
    assert (found.score, found.passed) == (None, False)
    frame = judged_frame(found)
    assert len(frame) == 3 + 3 + 1 + 1
    systems = systems_frame(frame)
    assert list(systems["score_minutes"].isna()) == [False, False, True, True]
    assert list(systems["verdict"])[-1] == "rejected"
    assert "problem" in csv_text(frame).splitlines()[0]
    name = ["4.1", "gpt3", "Z", SYSTEM]
    for columns, cells in (("200", [*name, "512"]), ("80", [*name, "batch"])):
        monkeypatch.setenv("COLUMNS", columns)
        lines = systems_text(systems).splitlines()
        assert next(line for line in lines if "  Z  " in line).split()[:5] == cells
        assert max(map(len, lines)) <= int(columns)


def test_findings_are_those_of_their_system(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    for folder in (package / "results", package / "systems"):
        (path,) = folder.iterdir()
        copy = path.with_name(path.name.replace(SYSTEM, "other"))
        shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
    log = package / "results" / "other" / "gpt3" / "result_0.txt"
    log.write_text(log.read_text().replace('"opt_name", "value": "adam"', '"opt_name", "value": "sgd"'))
    found = {one.result_set.name: one for one in judged([package]).systems}
    assert any(one.rule.startswith("value.") for one in found["other"].findings("error"))
    assert not any(one.rule.startswith("value.") for one in found[SYSTEM].findings("error"))


def test_screen_and_page_agree_on_verdicts_and_questions_of_a_package_of_two_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = write_package(tmp_path)
    for folder in (package / "results", package / "systems"):
        (path,) = folder.iterdir()
        copy = path.with_name(path.name.replace(SYSTEM, "other"))
        shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
    for number, log in enumerate(sorted((package / "results" / "other" / "gpt3").iterdir())):
        log.write_text(as_text(records(70_100 + 17 * number)).replace("ACME-H100-n64", "16xB200"))
    shutil.rmtree(package / "benchmarks")
    review = own_review([package])
    judgement = Judgement(review.subjects)
    (subject,) = review.subjects
    monkeypatch.setenv("COLUMNS", "200")
    board = leaderboard(review).splitlines()[1:]
    assert sorted(line.rpartition("  ")[2] for line in board) == sorted(one.verdict for one in judgement.systems)
    frame, names = judged_frame(judgement), system_names(judgement)
    (table,) = systems_tables(frame, names, judgement)
    notes = " ".join(note for row in table.rows for cell in row.cells for note in cell.notes)
    questions = sum(int(number) for number in re.findall(r"(\d+) questions?", notes))
    assert questions == len(subject.of("warning")) > 2 and subject.of_package("warning")
    assert f"{questions} questions" in verdict_of(judgement)[3]


def test_names_are_as_short_as_tells_runs_apart() -> None:
    paths = [Path(f"/x/{system}/gpt3/result_0.txt") for system in ("a", "b")]
    assert distinct_names(paths) == ["a", "b"]
    assert distinct_names([Path(f"/x/a/gpt3/result_{n}.txt") for n in range(2)]) == ["result_0", "result_1"]
    assert distinct_names([*paths, Path("/x/a/gpt3/result_1.txt")]) == ["a/result_0", "b/result_0", "a/result_1"]
    assert distinct_names(paths[:1] * 2) == ["0: result_0.txt", "1: result_0.txt"]


def test_runs_of_one_system_have_a_colour_each_and_those_of_several_differ_in_dashes(tmp_path: Path) -> None:
    runs = made_runs(*(write_run(tmp_path / str(number), seed=number) for number in range(3)))
    assert [(run.system, run.group, run.dash) for run in runs] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]
    packages = [write_package(tmp_path).rename(tmp_path / name) for name in ("A", "B")]
    assert [(run.group, run.dash) for run in made_runs(*packages)] == [(n, dash) for n in (0, 1) for dash in range(3)]


def test_configuration_that_cannot_be_read_is_the_users_to_mend_but_ends_no_strangers_package(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "config.json").write_text("{")
    with pytest.raises(InputError, match="not a run's configuration"):
        made_runs(run)
    package = write_package(tmp_path)
    (package / "results" / SYSTEM / "gpt3" / "config.json").write_text("{")
    assert len(made_runs(package)) == 3


def test_folder_without_a_result_is_named_beside_runs_and_stops_nothing(tmp_path: Path) -> None:
    run, refused = write_run(tmp_path / "run"), tmp_path / "refused"
    (refused / "attempts" / "0001").mkdir(parents=True)
    assert judge([run, refused], official=False).empty_folders == [refused]
    lines = write_report([run, refused], tmp_path / "page.html").splitlines()
    assert lines[0] == f"{refused}: no result_*.txt there, and not on the page" and len(lines) == 2
    assert f"{refused}: no result_*.txt there" in (tmp_path / "page.html").read_text()
    with pytest.raises(InputError, match=f"{refused}: no result_"):
        judge([refused], official=False)


def test_no_results_are_one_line(tmp_path: Path) -> None:
    junk = tmp_path / "result_0.txt"
    junk.write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="no MLLOG record in it; name result files"):
        judge([junk])
    with pytest.raises(InputError, match="no results given"):
        judge([])


def test_command_prints_systems_and_writes_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judgement, "review", own_review)
    run, table = str(write_run(tmp_path / "run")), tmp_path / "t.csv"
    assert parse(["results", run, "--csv", str(table)]).run() == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"1 system, 1 run; {table}"
    head, row = table.read_text().splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["minutes"][:8] == "0.183333"
    for option in ("--csv", "--parquet"):
        with pytest.raises(InputError, match=f"{tmp_path}: a folder; {option} is the file to write"):
            parse(["results", run, option, str(tmp_path)]).run()
    with pytest.raises(InputError, match=r"--ruleset 5\.0\.0: gpt3_rehearsal is in 3\.0\.0"):
        parse(["results", run, "--ruleset", "5.0.0"]).run()


def test_every_column_is_in_the_manual() -> None:
    manual = (REPOSITORY / "docs" / "results.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \|", manual[manual.index("| column |") :], re.MULTILINE)
    assert [name.strip("`") for row in rows for name in row.split(", ")] == list(TYPES)
