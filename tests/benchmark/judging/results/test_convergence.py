"""The convergence test: numbers got by running the official checker (docs/facts/mlperf_review.md 5, 5.11)."""

import json
from pathlib import Path

import pytest

from benchmark.judging.results.convergence import (
    Convergence,
    ReferenceChoice,
    ReferencePoint,
    custom_points,
    judge_convergence,
    make_point,
    points_for,
    prune,
)
from benchmark.judging.results.judged import GPT3, REHEARSED
from foundation.errors import InputError
from tests.benchmark.judging.review.fixture import Log, T, records, summary_of


def official(ruleset: str) -> tuple[ReferencePoint, ...]:
    return points_for(GPT3, ruleset)


def judge(size: int, evaluations: int, ruleset: str) -> Convergence:
    run = summary_of(records(1, batch_size=size, evaluations=evaluations))
    return judge_convergence([run] * 3, official(ruleset))


def test_reference_points_of_the_rulesets() -> None:
    old, new = ({point.batch_size: point for point in official(name)} for name in ("4.0.0", "4.1.0"))
    assert official("3.0.0") == official("3.1.0") == official("4.0.0")
    assert old[2048].mean == 1182793728
    assert old[2048].deviation == 25165824
    assert old[2048].least == pytest.approx(1116578914, abs=1)
    assert new[2048].least == pytest.approx(1119593070.25, abs=0.01)
    assert old[1536].least == pytest.approx(1076517411, abs=1)
    assert old[3072].least == pytest.approx(1158605944, abs=1)
    assert old[8192].least == pytest.approx(1560767723, abs=1)
    assert (new[6144].deviation, new[6144].least) == (0, 1409286144)
    assert [point.batch_size for point in prune(official("4.0.0"))] == [2048, 3072, 4096, 8192]
    assert [point.batch_size for point in prune(official("4.1.0"))] == [2048, 3072, 4096, 6144, 8192]
    assert [point.outliers for point in official("4.1.0") if point.outliers] == [(13790871552,)]
    assert not [point for point in official("4.0.0") if point.outliers]
    (point,) = points_for(REHEARSED, "4.1.0")
    assert (point.batch_size, len(point.tokens), point.outliers) == (16, 8, ())
    assert 0 < point.least < point.mean
    assert make_point(16, None, [100.0] * 6).least == 100  # without spread there is no tolerance


@pytest.mark.parametrize(
    ("size", "ruleset", "least", "factor", "unscaled"),
    [
        (1536, "4.1.0", 23, 1.0174, 24),
        (2048, "4.1.0", 23, 1.0174, 24),
        (2304, "4.0.0", 22, 1.0413, 23),
        (2688, "4.0.0", 21, 1.0367, 22),
        (2904, "4.0.0", 22, 1.0223, 23),
        (3072, "4.0.0", 24, 1.0, 24),
        (4096, "4.1.0", 25, 1.0, 25),
        (6144, "4.0.0", 28, 1.0223, 29),
        (6144, "4.1.0", 28, 1.0, 28),
        (8192, "4.1.0", 32, 1.0078, 33),
    ],
)
def test_least_evaluations(size: int, ruleset: str, least: int, factor: float, unscaled: int) -> None:
    assert judge(size, least - 1, ruleset).standing == "fails"
    passing = judge(size, least, ruleset)
    assert passing.standing == ("passes" if factor == 1 else "passes, scaled")
    assert passing.factor == pytest.approx(factor, abs=5e-5)
    assert judge(size, unscaled, ruleset).standing == "passes"


def test_anything_passes_by_the_void_entry_and_that_is_said() -> None:
    fast = judge(3072, 8, "4.1.0")
    assert (fast.standing, fast.repaired) == ("passes, scaled", "fails")
    assert judge(3072, 8, "4.0.0").standing == "fails"
    honest = judge(3072, 25, "4.1.0")
    assert (honest.standing, honest.repaired) == ("passes", "passes")
    assert judge(3072, 24, "4.1.0").factor == pytest.approx(1.0083, abs=5e-5)
    assert judge(2304, 5, "4.1.0").repaired == "fails"
    assert judge(2048, 24, "4.1.0").repaired is None


def test_failed_run_counts_as_the_fastest() -> None:
    """A quirk of the official checker: infinity is 1e9 tokens, less than any run takes."""
    runs = []
    for number, evaluations in enumerate((23, 24, 25)):
        log = Log(records(number, evaluations=evaluations))
        if evaluations == 25:
            log.metadata("run_stop", status="aborted")
        runs.append(summary_of(log.records))
    assert judge_convergence(runs, official("4.1.0")).middle == 23 * 50_331_648


def test_what_is_not_tested() -> None:
    assert judge_convergence([summary_of(records(1))], official("4.1.0")).standing == "not tested"
    assert judge(12288, 40, "4.1.0").standing == "no reference point"


def test_points_of_a_users_file_replace_the_rulesets(tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    record = {"Benchmark": "gpt3", "BS": 2048, "Epochs to converge": [22 * T, 22 * T, 23 * T, 23 * T]}
    path.write_text(json.dumps({"a": record}))
    (point,) = points_for(GPT3, "4.1.0", ReferenceChoice(path))
    assert (point.batch_size, point.mean) == (2048, 22.5 * T)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[", "no reference points"),
        ("[]", "no reference points"),
        ("{}", "no reference points"),
        ('{"a": {"BS": 5}}', "no reference points"),
        ('{"a": {"BS": 5, "Epochs to converge": [1, 2, 3]}}', "with 3 runs"),
        ('{"a": {"BS": -5, "Epochs to converge": [1, 2, 3, 4]}}', "numbers above 0"),
        ('{"a": {"BS": 5, "Epochs to converge": ["1", "2", "3", "4"]}}', "no reference points"),
        ('{"a": {"BS": 5, "Epochs to converge": [1, 2, 3, 1' + "0" * 400 + "]}}", "no reference points"),
    ],
)
def test_files_without_points_are_refused(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    path.write_text(content)
    with pytest.raises(InputError, match=complaint):
        custom_points(path)
    with pytest.raises(InputError, match="folder, not a regular file; --custom-rcps takes"):
        custom_points(tmp_path)


def test_without_pruning_every_point_counts() -> None:
    """1536 is pruned: its runs are slower than those at 2048."""
    run = summary_of(records(1, batch_size=1536, evaluations=24))
    points = official("4.1.0")
    pruned, full = (judge_convergence([run] * 3, points, pruned) for pruned in (True, False))
    assert "compared with that at 2048" in pruned.why
    assert full.why == "reference point at batch size 1536"
