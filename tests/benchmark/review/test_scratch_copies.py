"""What the official tools get to see of a package."""

from pathlib import Path

from benchmark.results.mllog import MOST_BYTES
from benchmark.results.subjects import ResultSet, SubmissionPackage
from benchmark.review.scratch_copies import copy_file, copy_package, copy_results
from tests.benchmark.review.fixture import SYSTEM, write_package


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
    logs = {f"results/_a_1_/gpt3/result_{number}.txt" for number in range(3)}
    assert names(copy.path) == {"systems/_a_1_.json", "results/_a_1_/gpt3/package_checker_params", *logs}
    assert copy.path.name == "SUBMITTER"
    assert copy.notes == (
        "'A*' went to the tools as SUBMITTER: they take its characters for a pattern",
        "'a[1]' went to the tools as _a_1_: they take its characters for a pattern",
    )
    assert copy.renamed[str(copy.path / "systems" / "_a_1_.json")] == str(package / "systems" / "a[1].json")


def test_results_are_numbered_and_a_file_too_large_stays_empty(tmp_path: Path) -> None:
    large = tmp_path / "large.txt"
    with large.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    small = tmp_path / "small.txt"
    small.write_text("text")
    renamed = copy_results(ResultSet("x", "4.1.0", [small, large], None), tmp_path / "to")
    assert renamed == {
        str(tmp_path / "to" / "result_0.txt"): str(small),
        str(tmp_path / "to" / "result_1.txt"): str(large),
    }
    assert [(tmp_path / "to" / f"result_{number}.txt").stat().st_size for number in range(2)] == [4, 0]
    assert copy_file(small, tmp_path / "a" / "b") == {str(tmp_path / "a" / "b"): str(small)}
