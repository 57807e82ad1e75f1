"""The table of published runs says what docs/facts/mlperf_review.md 6 says."""

from benchmark.results.judged import GPT3
from benchmark.review.published.published_traces import published_traces


def test_all_published_traces_are_there() -> None:
    runs = published_traces()
    assert len(runs) == 126
    assert len({(run.round, run.folder, run.system) for run in runs}) == 42
    assert len({run.run_start_ms for run in runs}) == 117
    assert len({run.name for run in runs}) == 126


def test_each_ends_with_its_first_value_at_the_target() -> None:
    for run in published_traces():
        *before, last = run.log_perplexities
        assert GPT3.floor < last <= GPT3.target < min(before)
        assert len(run.log_perplexities) == len(run.intervals_ms) >= 22
        assert min(run.intervals_ms) > 5_000


def test_minutes_of_a_published_result() -> None:
    eos = [run for run in published_traces() if run.system == "eos_n64_ngc24.09_nemo"]
    assert [round(sum(run.intervals_ms) / 60_000, 2) for run in eos] == [49.77, 53.51, 49.80]
    assert {run.accelerators for run in eos} == {512}
