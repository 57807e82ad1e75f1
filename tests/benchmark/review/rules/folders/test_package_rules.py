"""Warnings and notes about a package's folder; the errors are in the table of damages."""

import shutil
from pathlib import Path

import pytest

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.rules.folders import package_rules
from tests.benchmark.review.fixture import SYSTEM, write_package


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_package(tmp_path)


def found(rule: str, folder: Path) -> list[tuple[str, str]]:
    deviations = getattr(package_rules, rule)(SubmissionPackage(folder, "4.1.0"))
    return [(str(at.path.relative_to(folder)), at.found) for at in deviations]


def test_folders_that_do_not_count(folder: Path) -> None:
    for name in ("misc", "documentation", ".git"):
        (folder / name).mkdir()
    assert found("top_level", folder) == [("misc", "folder misc")]
    shutil.rmtree(folder / "benchmarks")
    assert ("code", found("code", folder)) == ("code", [])  # said once
    assert found("top_level", folder)[0] == (".", "no benchmarks/")


def test_code_and_scripts_are_asked_for(folder: Path) -> None:
    implementations = folder / "benchmarks" / "gpt3" / "implementations"
    (implementations / SYSTEM / "setup.sh").unlink()
    place = "benchmarks/gpt3/implementations"
    assert found("code", folder) == [(place, "no setup.sh")]
    shutil.rmtree(implementations / SYSTEM)
    assert found("code", folder) == [(place, "no implementation")]


def test_system_without_results_and_other_benchmarks(folder: Path) -> None:
    shutil.copy(folder / "systems" / f"{SYSTEM}.json", folder / "systems" / "other.json")
    (folder / "results" / SYSTEM / "bert").mkdir()
    assert found("undescribed", folder) == [("systems/other.json", "a system without results")]
    assert found("other_benchmarks", folder) == [(f"results/{SYSTEM}/bert", "not reviewed")]
    assert found("benchmark_names", folder) == []


def test_one_name_of_the_submitter(folder: Path) -> None:
    path = folder / "results" / SYSTEM / "gpt3" / "result_1.txt"
    path.write_text(path.read_text().replace('"ACME"', '"Acme"'))
    assert found("same_submitter", folder) == [(f"results/{SYSTEM}/gpt3/result_1.txt", "submission_org 'Acme'")]
