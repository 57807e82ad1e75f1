"""A review as JSON."""

import json
import math
from pathlib import Path

import pytest

from benchmark.review.review_json import null_for_nan, review_as_json
from tests.benchmark.review.fixture import SYSTEM, records, write_package
from tests.benchmark.review.reviews import review_of, verdict


def test_result_of_three_runs(tmp_path: Path) -> None:
    results = write_package(tmp_path) / "results" / SYSTEM / "gpt3"
    content = json.loads(json.dumps(review_as_json(review_of([results]))))
    assert (content["format"], content["passed"], content["seconds"]) == (3, True, 1.25)
    assert content["verdict"] == "acceptable"
    (subject,) = content["subjects"]
    assert (subject["kind"], subject["path"], subject["ruleset"]) == ("runs", str(results), "4.1.0")
    assert subject["counts"] == {"error": 0, "warning": 0, "note": 0}
    assert subject["not_applicable"] == ["system description", "package", "repository", "summarizer"]
    assert subject["official"][0]["outcome"] == "passed"
    (result,) = subject["results"]
    assert result["minutes"] == pytest.approx(52, abs=0.01)
    assert result["mfu"] == pytest.approx(result["tflops_per_accelerator"] / 989.4)
    convergence = result["convergence"]
    assert (convergence["standing"], convergence["batch_size"], convergence["factor"]) == ("passes", 2048, 1)
    assert convergence["compared_with"]["batch_size"] == 2048
    assert len(convergence["reference_points"]) == 6
    assert convergence["standing_without_void"] is None


def test_what_is_no_number_is_null() -> None:
    assert null_for_nan({"a": [math.nan, (1.5, math.inf)], "b": "nan"}) == {"a": [None, [1.5, None]], "b": "nan"}


def test_findings_and_failed_tools(tmp_path: Path) -> None:
    results = write_package(tmp_path, lambda seed: records(seed, evaluations=22)) / "results" / SYSTEM / "gpt3"
    content = review_as_json(review_of([results], verdict("it is wrong")))
    (subject,) = content["subjects"]
    assert (content["passed"], subject["passed"], subject["counts"]["error"]) == (False, False, 1)
    assert subject["official"][0]["complaints"] == ["it is wrong"]
    (finding,) = subject["findings"]
    assert set(finding) == {
        "rule",
        "severity",
        "source",
        "path",
        "line",
        "found",
        "due",
        "mend",
        "text",
        "question",
        "rules",
        "also",
    }
    assert subject["verdict"] == "rejected"
    assert finding["rule"] == "rcp.test"
    assert finding["path"] in ("result_0.txt", "result_1.txt", "result_2.txt")
    assert finding["text"].startswith(':::MLLOG {"namespace": ""')
    assert finding["question"] == ""
    assert finding["source"] == "docs/facts/mlperf_review.md 5.4, 5.6, 5.10; convergence test"
