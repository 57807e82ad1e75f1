"""Llama 3.1 is judged by its own rules and those of its round; what accepted logs do is no error."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmark.judging.results.score import score
from benchmark.judging.results.subjects import ResultSet, find_subjects
from benchmark.judging.review.verdict import own_findings
from tests.benchmark.judging.review.published_llama import (
    AMD_8B,
    FLORIDA_8B,
    FLORIDA_405B,
    HPE_8B,
    NVIDIA_8B,
    NVIDIA_405B,
    NVIDIA_405B_NEXT,
    PublishedLog,
)
from tests.benchmark.judging.review.reviews import official_checks

EARLY = "an evaluation at 12,256 samples, one step early"
PUBLISHED: tuple[tuple[PublishedLog, dict[str, str]], ...] = (
    (NVIDIA_8B, {}),
    (AMD_8B, {"note eval.cadence": EARLY}),
    (HPE_8B, {"warning eval.cadence": "an evaluation at 8,192 samples"}),
    (FLORIDA_8B, {"warning eval.cadence": "at 24,576 samples", "warning cache.clear": "False"}),
    (NVIDIA_405B, {}),
    (NVIDIA_405B_NEXT, {"warning batch.size": "960"}),
    (FLORIDA_405B, {"warning eval.cadence": "an evaluation at 288,000 samples", "warning batch.size": "576"}),
)
DAMAGES: tuple[tuple[PublishedLog, dict[str, Any], str, str], ...] = (
    (NVIDIA_8B, {"opt_learning_rate_decay_steps": 1199983}, "error schedule.formula", "1199984 = 1200000 - 16"),
    (NVIDIA_8B, {"max_steps": None}, "error key.present", "one max_steps"),
    (NVIDIA_8B, {"opt_adamw_weight_decay": 0.01}, "error value.fixed", "0.1"),
    (NVIDIA_8B, {"opt_end_learning_rate": 4e-4}, "error schedule.rate", "4e-05"),
    (NVIDIA_8B, {"eval_samples": 1023}, "error eval.samples", "1024"),
    (NVIDIA_8B, {"init_checkpoint_step": 7}, "error schedule.formula", "0 ="),
    (NVIDIA_8B, {"submission_benchmark": "llama"}, "error value.benchmark", "'llama31_8b'"),
    (NVIDIA_405B, {"opt_base_learning_rate": 9e-05}, "error schedule.rate", "8e-05"),
    (NVIDIA_405B, {"opt_end_learning_rate": 8e-06}, "error schedule.rate", "8e-07"),
    (NVIDIA_405B_NEXT, {"opt_learning_rate_decay_steps": 1192000}, "error schedule.formula", "1430400 = ceil"),
)


def judged(folder: Path) -> ResultSet:
    (one,) = find_subjects([folder], None)
    assert isinstance(one, ResultSet)
    return one


def found(one: ResultSet) -> dict[str, tuple[str, str]]:
    return {
        f"{finding.severity} {finding.rule}": (finding.observed, finding.expected)
        for finding in own_findings(one)
        if not finding.rule.startswith("named.")
    }


@pytest.mark.parametrize(("log", "due"), PUBLISHED, ids=lambda one: getattr(one, "folder", ""))
def test_published_logs_raise_questions_at_most(log: PublishedLog, due: dict[str, str], tmp_path: Path) -> None:
    one = judged(log.write(tmp_path))
    assert (one.judged.name, one.ruleset[:3]) == (log.benchmark, log.folder.partition("_v")[2][:3])
    findings = found(one)
    assert set(findings) == set(due)
    for rule, words in due.items():
        assert words in findings[rule][0]


@pytest.mark.parametrize(("log", "changes", "rule", "due"), DAMAGES)
def test_what_the_rules_of_the_benchmark_forbid_is_an_error(
    log: PublishedLog, changes: dict[str, Any], rule: str, due: str, tmp_path: Path
) -> None:
    findings = found(judged(replace(log, changes=changes).write(tmp_path)))
    assert due in findings[rule][1]


@pytest.mark.parametrize(
    ("log", "minutes", "factor"), [(AMD_8B, 99.3101, 1.0040117358242), (NVIDIA_405B, 230.6756, 7 / 6)]
)
def test_score_is_the_published_one(log: PublishedLog, minutes: float, factor: float, tmp_path: Path) -> None:
    """The factor is that of the published scaling.json."""
    one = judged(log.write(tmp_path, len(log.runs)))
    result = score(replace(one, folder=None))
    assert result.measured_minutes == pytest.approx(minutes, abs=1e-4)
    assert one.convergence.standing == "passes, scaled"
    assert result.factor == pytest.approx(factor, abs=1e-12)
    nine = replace(one, files=one.files[1:])
    assert score(nine).why_no_score == f"a score takes {len(log.runs)} runs, there are {len(log.runs) - 1}"
    assert nine.convergence.standing == "not tested"


def test_ruleset_6_1_asks_for_its_keys(tmp_path: Path) -> None:
    folder = NVIDIA_8B.write(tmp_path)
    (newest,) = find_subjects([folder], "6.1.0")
    lacking = [one.expected for one in own_findings(newest) if one.rule == "key.present"]
    assert "one lowest_numerical_precision_in_comm" in lacking
    assert len(lacking) == 9


def test_runs_of_two_benchmarks_in_one_folder_are_no_result(tmp_path: Path) -> None:
    folder = NVIDIA_8B.write(tmp_path)
    other = NVIDIA_405B_NEXT.write(tmp_path) / "result_0.txt"
    other.rename(folder / "result_1.txt")
    one = judged(folder)
    assert one.judged.name == "llama31_8b"
    assert found(one) == {"error value.benchmark": ("submission_benchmark 'llama31_405b'", "'llama31_8b'")}
    (check, _, *_) = official_checks(one)
    assert check.passed


def test_first_evaluation_that_is_late_is_named_by_the_rules_first(tmp_path: Path) -> None:
    changed = NVIDIA_405B.folder.replace("v5.0", "v5.1")
    findings = found(judged(replace(NVIDIA_405B, folder=changed).write(tmp_path)))
    told = ("an evaluation at 46,080 samples", "276,480: the first that the rules ask for")
    assert findings["warning eval.cadence"] == told


@pytest.mark.parametrize(
    ("value", "changed", "number"), [("5.2873", "4.1", 1), ("3.7082", "3.41", 5), ("3.7082", "3.74", 0)]
)
def test_a_start_from_other_weights_is_far_from_the_published_curves(
    value: str, changed: str, number: int, tmp_path: Path
) -> None:
    """At batch size 16 the first and the fifth evaluation of 150 published logs are known."""
    log = replace(NVIDIA_8B, evaluations=NVIDIA_8B.evaluations.replace(f":{value}:", f":{changed}:"))
    findings = found(judged(log.write(tmp_path)))
    words = [observed for rule, (observed, _) in findings.items() if rule == "warning curve.envelope"]
    assert [text[:12] for text in words] == ([f"evaluation {number}"] if number else [])
