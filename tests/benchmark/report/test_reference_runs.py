"""The band of the reference runs."""

import pytest

from benchmark.report.figures import Band
from benchmark.report.reference_runs import reference_band
from benchmark.results.run_summary import RunSummary
from tests.benchmark.review.damage import Log, T
from tests.benchmark.review.fixture import records, summary_of


def run_of(size: int) -> RunSummary:
    return summary_of(records(1, batch_size=size, evaluations=2))


@pytest.mark.parametrize(("ruleset", "slowest"), [("4.0.0", 25), ("4.1.0", 25)])
def test_band_at_a_point_leaves_void_runs_out(ruleset: str, slowest: int) -> None:
    assert reference_band([run_of(3072)], ruleset) == Band(24 * T, slowest * T, "reference runs at batch size 3072")


def test_band_between_two_points_is_interpolated() -> None:
    band = reference_band([run_of(5120)] * 2, "4.1.0")
    assert band == Band(26.5 * T, 27 * T, "reference runs, between 4096 and 6144")


def test_no_band_where_nothing_is_known() -> None:
    unknown = Log(records(1))
    unknown.set("submission_benchmark", "bert")
    for runs in ([run_of(1024)], [run_of(9000)], [run_of(2048), run_of(3072)], [summary_of(unknown.records)], []):
        assert reference_band(runs, "4.1.0") is None
