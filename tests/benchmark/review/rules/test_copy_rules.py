"""Copies within a system, a package, a round, and of published runs; a published log itself is none."""

from pathlib import Path

import pytest

from benchmark.results.subjects import ResultSet, SubmissionPackage
from benchmark.review.findings import Deviation, Run
from benchmark.review.published.published_traces import PublishedTrace, published_traces
from benchmark.review.rules import copy_rules
from benchmark.review.rules.copy_rules import like_name
from tests.benchmark.review.damage import Log
from tests.benchmark.review.disguises import DISGUISES, as_run, noisy, values_of, with_values
from tests.benchmark.review.fixture import SYSTEM, Record, as_text, records, summary_of, write_package


def run_of(run: list[Record], name: str = "result_0.txt") -> Run:
    return summary_of(run, Path(name))


def set_of(*runs: Run, description: Path | None = None) -> ResultSet:
    one = ResultSet("x", "4.1.0", [], None, description)
    one.__dict__["runs"] = runs
    return one


def published_log(published: PublishedTrace) -> list[Record]:
    """As it was published, in what the table has of it."""
    log = Log(as_run(published, 5))
    log.set("submission_org", published.org)
    log.set("submission_platform", published.platform)
    moved = published.run_start_ms - log.records[log.place("run_start")]["time_ms"]
    log.shift(0, moved)
    return log.records


def rules_on(one: ResultSet) -> dict[str, list[Deviation]]:
    rules = ("published_copy", "published_alike", "published_under_other_name", "published_itself")
    found = {name: list(getattr(copy_rules, name)(one)) for name in rules}
    return {name: deviations for name, deviations in found.items() if deviations}


def test_second_of_two_equal_runs_is_named() -> None:
    first, other, again = run_of(records(1)), run_of(records(2)), run_of(records(1), "result_2.txt")
    (found,) = copy_rules.copied_in_system([first, other, again])
    assert (found.path, found.line, found.found) == (Path("result_2.txt"), 31, "24 of its 24 values, as result_0.txt")
    assert list(copy_rules.alike_in_system([first, other, again])) == []


def test_runs_that_are_nearly_alike_are_a_question() -> None:
    runs = [run_of(records(1)), run_of(with_values(records(77), values_of(noisy(records(1), 7e-5))))]
    assert list(copy_rules.copied_in_system(runs)) == []
    assert [found.mend for found in copy_rules.alike_in_system(runs)] == [copy_rules.EXPLAIN]


def test_run_of_another_system_of_the_package(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    other = package / "results" / "other" / "gpt3"
    other.mkdir(parents=True)
    (other / "result_0.txt").write_text(as_text(DISGUISES["a day later and 3 % slower"](records(1001))))
    (found,) = copy_rules.copied_in_package(SubmissionPackage(package, "4.1.0"))
    assert found.path == package / "results" / SYSTEM / "gpt3" / "result_0.txt" or found.path.parent == other
    assert list(copy_rules.alike_in_package(SubmissionPackage(package, "4.1.0"))) == []


def test_run_of_another_submission_of_the_round() -> None:
    theirs = [run_of(records(3), "v4.1/B/results/s/gpt3/result_0.txt")]
    mine = [run_of(records(1)), run_of(DISGUISES["an hour later"](records(3)))]
    (found,) = copy_rules.copied_from_others(mine, theirs)
    assert found.found == "24 of its 24 values, as B/results/s/gpt3/result_0.txt"
    published = [run_of(published_log(published_traces()[0]))]
    assert list(copy_rules.copied_from_others(published, published)) == []


def test_published_log_is_a_note_at_its_own_place() -> None:
    for published in published_traces()[::25]:
        assert list(rules_on(set_of(run_of(published_log(published))))) == ["published_itself"]


def test_published_log_beside_another_submitters_description(tmp_path: Path) -> None:
    description = tmp_path / "s.json"
    description.write_text('{"submitter": "ACME"}')
    found = rules_on(set_of(run_of(published_log(published_traces()[6])), description=description))
    assert list(found) == ["published_under_other_name", "published_itself"]
    description.write_text('{"submitter": "NVIDIA"}')
    assert list(rules_on(set_of(run_of(published_log(published_traces()[6])), description=description))) == [
        "published_itself"
    ]


@pytest.mark.parametrize("place", [0, 40, 125])
@pytest.mark.parametrize("name", ["an hour later", "noise of 1e-5", "values rounded to 4 decimals"])
def test_disguised_published_run(name: str, place: int) -> None:
    published = published_traces()[place]
    found = rules_on(set_of(run_of(DISGUISES[name](as_run(published, 5)))))
    assert list(found) == ["published_copy"]
    (copy,) = found["published_copy"]
    assert f"/{published.system}/{published.file}" in copy.found


def test_published_log_with_one_value_changed_is_a_copy() -> None:
    log = Log(published_log(published_traces()[50]))
    log.set("eval_accuracy", 2.7512, 0)
    assert list(rules_on(set_of(run_of(log.records)))) == ["published_copy"]


def test_runs_of_a_rehearsal_are_not_compared_with_published_ones() -> None:
    log = Log(as_run(published_traces()[0], 5))
    log.set("submission_benchmark", "gpt3_rehearsal")
    assert rules_on(set_of(run_of(log.records))) == {}


def test_names_that_may_mean_the_same() -> None:
    assert like_name("Habana", "Intel-HabanaLabs")
    assert like_name("NVIDIA+CoreWeave", "NVIDIA_CoreWeave")
    assert like_name("Azure+NVIDIA", "NVIDIA")
    assert not like_name("ACME", "NVIDIA")
    assert not like_name("", "NVIDIA")
