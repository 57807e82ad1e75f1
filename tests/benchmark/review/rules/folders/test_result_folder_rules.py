"""What lies beside the results: runs that nobody reads, links, bypasses, factors."""

import json
from pathlib import Path

import pytest

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.rules.folders import result_folder_rules
from tests.benchmark.review.fixture import SYSTEM, as_text, records, write_package
from tests.benchmark.review.trials.told import rule_tests

RESULTS = f"results/{SYSTEM}/gpt3"
RULES = (
    "unknown_files", "unread_runs", "misplaced", "result_links", "bypass", "bypass_in_round_3", "bypass_of_others",
    "better_scaling", "other_scaling",
)  # fmt: skip
RUN = as_text(records(9, evaluations=3))
FILES: tuple[tuple[str, str, str], ...] = (
    (f"{RESULTS}/notes.md", "nothing", "unknown_files"),
    (f"{RESULTS}/run_3.txt", RUN, "unread_runs"),
    (f"{RESULTS}/result_3.txt.bak", RUN, "unread_runs"),
    (f"{RESULTS}/older/run.log", RUN, "unread_runs"),
    (f"{RESULTS}/power/node_0.txt", ':::MLLOG {"key": "power_reading"}', ""),
    (f"results/{SYSTEM}/result_0.txt", RUN, "misplaced"),
    ("result_0.txt", RUN, "misplaced"),
    ("results/other/GPT3/result_0.txt", RUN, "misplaced"),
    (f"results/{SYSTEM}/bert/result_0.txt", RUN, ""),
    ("benchmarks/gpt3/result_0.txt", RUN, ""),
    (f"{RESULTS}/package_checker_params", "rcp-bypass", "bypass"),
    (f"{RESULTS}/package_checker_params", "  --RCP_Bypass=1", "bypass"),
    ("package_checker_params", "rcp_bypass\n", "bypass"),
    (f"results/{SYSTEM}/package_checker_params", "seed-checker-bypass", "bypass"),
    (f"results/{SYSTEM}/bert/package_checker_params", "rcp-bypass", "bypass_of_others"),
    (f"{RESULTS}/package_checker_params", "nothing", ""),
    (f"{RESULTS}/scaling.json", '{"scaling_factor": 1.0}', ""),
    (f"{RESULTS}/scaling.json", '{"scaling_factor": 0.9}', "better_scaling"),
    (f"{RESULTS}/scaling.json", '{"scaling_factor": -1}', "better_scaling"),
    (f"{RESULTS}/scaling.json", '{"scaling_factor": NaN}', "better_scaling"),
    (f"{RESULTS}/scaling.json", '{"scaling_factor": "1"}', "better_scaling"),
    (f"{RESULTS}/scaling.json", "[", "better_scaling"),
    (f"{RESULTS}/scaling.json", '{"scaling_factor": 1.01}', "other_scaling"),
)


def told(package: Path, ruleset: str = "4.1.0") -> dict[str, list[str]]:
    subject = SubmissionPackage(package, ruleset)
    found = {name: [at.found for at in getattr(result_folder_rules, name)(subject)] for name in RULES}
    return {name: words for name, words in found.items() if words}


@pytest.mark.parametrize(("path", "text", "rule"), FILES)
def test_file_in_a_package(path: str, text: str, rule: str, tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / path).parent.mkdir(parents=True, exist_ok=True)
    (package / path).write_text(text)
    assert list(told(package)) == ([rule] if rule else [])


def test_package_without_fault(tmp_path: Path) -> None:
    assert told(write_package(tmp_path)) == {}


def test_bypass_at_the_root_of_round_3_is_a_question(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "package_checker_params").write_text("rcp_bypass\n")
    assert list(told(package, "3.0.0")) == ["bypass_in_round_3"]


def test_links_among_results(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "results" / "hidden").symlink_to(SYSTEM)
    (package / "systems" / "hidden.json").symlink_to(f"{SYSTEM}.json")
    (package / RESULTS / "result_2.txt").unlink()
    (package / RESULTS / "result_2.txt").symlink_to("result_0.txt")
    assert sorted(told(package)["result_links"]) == ["a link in results/", "a link in results/", "a link in systems/"]


def test_factor_of_the_official_tool_is_right(tmp_path: Path) -> None:
    package = write_package(tmp_path, lambda seed: records(seed, evaluations=23))
    factor = SubmissionPackage(package, "4.1.0").sets[0].convergence.factor
    assert factor > 1.01
    assert told(package) == {"other_scaling": ["no scaling.json, so that the score is not scaled"]}
    (package / RESULTS / "scaling.json").write_text(json.dumps({"scaling_factor": factor}))
    assert told(package) == {}
    (package / RESULTS / "scaling.json").write_text('{"scaling_factor": 1.0}')
    assert list(told(package)) == ["better_scaling"]


def test_factor_that_is_a_folder(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / RESULTS / "scaling.json").mkdir()
    assert list(told(package)) == ["better_scaling"]


FOUND = (("package.unknown_file", "power as a plain file", "power"),)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND)
