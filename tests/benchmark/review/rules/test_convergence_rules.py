"""What is said of three runs by the recomputed convergence test."""

from collections.abc import Sequence
from pathlib import Path

from benchmark.results.subjects import ResultSet
from benchmark.review.rules import convergence_rules
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import Record, records, write_run

RULES = ("test", "only_by_void_data", "void_data", "scaled")


def set_of(folder: Path, runs: Sequence[list[Record]]) -> ResultSet:
    return ResultSet("x", "4.1.0", [write_run(folder / str(n), run) for n, run in enumerate(runs)], None)


def found(one: ResultSet) -> dict[str, list[str]]:
    told = {name: [(at.found) for at in getattr(convergence_rules, name)(one)] for name in RULES}
    return {name: texts for name, texts in told.items() if texts}


def three(folder: Path, batch_size: int, evaluations: int) -> ResultSet:
    return set_of(folder, [records(seed, batch_size=batch_size, evaluations=evaluations) for seed in (1, 2, 3)])


def test_as_fast_as_the_reference_is_nothing_to_tell(tmp_path: Path) -> None:
    assert found(three(tmp_path, 2048, 24)) == {}


def test_somewhat_faster_is_scaled(tmp_path: Path) -> None:
    assert found(three(tmp_path, 2048, 23)) == {
        "scaled": ["median 1,157,627,904 tokens, fewer than the reference mean: times 1.0174"]
    }


def test_too_fast_fails_at_the_last_evaluation_of_the_middle_run(tmp_path: Path) -> None:
    one = set_of(tmp_path, [records(seed, evaluations=count) for seed, count in ((1, 23), (2, 22), (3, 21))])
    (at,) = convergence_rules.test(one)
    assert (at.path.parent.name, at.line) == ("1", 27 + 5 * 21 + 4)
    assert at.found == "median 1,107,296,256 tokens to the target, reference point at batch size 2048"
    assert at.due == "at least 1,119,593,070"


def test_void_reference_data_is_told_where_it_matters_and_where_not(tmp_path: Path) -> None:
    void = "13,790,871,552 tokens at 3072"
    assert found(three(tmp_path / "a", 3072, 25)) == {"void_data": [f"void reference data: {void}"]}
    fast = found(three(tmp_path / "b", 3072, 8))
    assert fast["only_by_void_data"] == [f"passes only by void reference data: {void}"]
    assert set(fast) == {"only_by_void_data", "scaled"}


def test_nothing_is_tested_in_the_open_division(tmp_path: Path) -> None:
    runs = []
    for seed in (1, 2, 3):
        log = Log(records(seed, evaluations=20))
        log.set("submission_division", "open")
        runs.append(log.records)
    assert found(set_of(tmp_path, runs)) == {}


def test_batch_size_without_a_point_fails(tmp_path: Path) -> None:
    assert found(three(tmp_path, 12288, 40)) == {"test": ["above the largest reference point, 8192"]}
