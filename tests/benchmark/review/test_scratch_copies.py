"""What the official tools get to see of a package."""

import re
from pathlib import Path

import pytest

from benchmark.results.subjects import ResultSet, SubmissionPackage
from benchmark.review import scratch_copies
from benchmark.review.scratch_copies import (
    MOST_COPIED,
    MOST_LINE,
    MOST_LINES,
    SAFE_NAME,
    ScratchCopies,
    copy_package,
    copy_results,
    safe_name,
)
from tests.benchmark.review.fixture import SYSTEM, write_package

A1 = safe_name("a[1]")


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_systems_and_results_are_copied_and_no_code(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "results" / SYSTEM / "bert").mkdir()
    (package / "results" / SYSTEM / "bert" / "result_0.txt").touch()
    copy = copy_package(SubmissionPackage(package, "4.1.0"), tmp_path / "scratch")
    logs = {f"results/{SYSTEM}/gpt3/result_{number}.txt" for number in range(3)}
    assert copy.path == tmp_path / "scratch" / "ACME"
    assert names(copy.path) == {f"systems/{SYSTEM}.json", *logs}
    log = copy.path / "results" / SYSTEM / "gpt3" / "result_1.txt"
    assert Path(copy.renamed[str(log)]).read_bytes() == log.read_bytes()
    assert copy.notes == ()


def test_names_that_tools_take_for_patterns_are_replaced_and_told(tmp_path: Path) -> None:
    package = write_package(tmp_path).rename(tmp_path / "A*")
    (package / "results" / SYSTEM).rename(package / "results" / "a[1]")
    (package / "systems" / f"{SYSTEM}.json").rename(package / "systems" / "a[1].json")
    (package / "results" / "a[1]" / "gpt3" / "package_checker_params").write_text("x")
    copy = copy_package(SubmissionPackage(package, "4.1.0"), tmp_path / "scratch")
    logs = {f"results/{A1}/gpt3/result_{number}.txt" for number in range(3)}
    assert names(copy.path) == {f"systems/{A1}.json", f"results/{A1}/gpt3/package_checker_params", *logs}
    assert copy.path.name == "SUBMITTER"
    assert copy.notes == (
        "'A*' went to the tools as SUBMITTER: they take its characters for a pattern",
        f"'a[1]' went to the tools as {A1}: they take its characters for a pattern",
    )
    assert copy.renamed[str(copy.path / "systems" / f"{A1}.json")] == str(package / "systems" / "a[1].json")


def test_results_are_numbered_and_a_file_too_large_goes_empty(tmp_path: Path) -> None:
    large, many = tmp_path / "large.txt", tmp_path / "many.txt"
    line = b":::MLLOG " + b"x" * 1014 + b"\n"
    large.write_bytes(line * (MOST_COPIED // len(line) + 1))
    many.write_bytes(b":::MLLOG\r" * (MOST_LINES + 1))
    small = tmp_path / "small.txt"
    small.write_text("x" * MOST_LINE + "x\n:::MLLOG {}\n")
    wide = tmp_path / "wide.txt"
    wide.write_text(f":::MLLOG {'x' * MOST_LINE}\n")
    copies = copy_results(
        ResultSet("x", "4.1.0", [small, large, many, tmp_path / "nowhere", wide], None), tmp_path / "to"
    )
    assert copies.renamed[str(tmp_path / "to" / "result_1.txt")] == str(large)
    assert [(tmp_path / "to" / f"result_{number}.txt").stat().st_size for number in range(5)] == [
        12,
        0,
        0,
        0,
        0,
    ]
    assert copies.notes == [
        "'large.txt' went to the tools empty: 33,555,456 bytes, more than 33,554,432",
        "'many.txt' went to the tools empty: 500,001 lines, more than 500,000",
        "'nowhere' went to the tools empty: No such file or directory",
        "'wide.txt' went to the tools empty: a record's line of 65,545 characters, more than 65,536",
    ]


def test_copies_of_a_package_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = write_package(tmp_path)
    results = package / "results" / SYSTEM / "gpt3"
    for number in range(30):
        (results / f"link_{number}").symlink_to("result_0.txt")
    (results / "again").symlink_to(".")
    monkeypatch.setattr(scratch_copies, "MOST_COPIES", 20)
    copy = copy_package(SubmissionPackage(package, "4.1.0"), tmp_path / "scratch")
    assert len(copy.renamed) == 21
    assert "'gpt3' went to the tools in part: more than 20 files" in copy.notes
    copies = ScratchCopies(left=3)
    copies.add(results / "result_0.txt", tmp_path / "copy")
    assert "more than 3" in copies.notes[0]


def test_names_stay_different_and_as_long_as_a_file_system_takes() -> None:
    assert safe_name("result_0.txt") == "result_0.txt"
    names = ["a[1]", "a[2]", "a*1]", "\udcff.json", "é" * 200, "x" * 250, "a b.txt", "result_[0].txt", "-x", ".x"]
    safe = [safe_name(name) for name in names]
    assert len(set(safe)) == len(names)
    assert all(SAFE_NAME.fullmatch(name) and len(name) < 200 for name in safe)
    assert re.fullmatch(r"result__0__[0-9a-f]{6}\.txt", safe[7])
