"""What a log says of its run."""

import pytest

from tests.benchmark.judging.review.fixture import Log, T, records, summary_of


def test_summary_of_a_run() -> None:
    run = summary_of(records(7))
    assert (run.benchmark, run.org, run.platform, run.division) == ("gpt3", "ACME", "ACME-H100-n64", "closed")
    assert (run.seeds, run.global_batch_size, run.sequence_length) == ([7], 2048, 2048)
    assert run.trained_tokens == 24 * T
    assert (len(run.evaluations), run.status, run.target) == (24, "success", 2.69)
    assert run.reached == run.evaluations[-1]
    assert run.evaluations[0].seconds == pytest.approx(10, abs=0.01)
    assert run.evaluation_s == pytest.approx(240, abs=0.1)
    assert run.minutes == pytest.approx(24 * 130 / 60, abs=0.01)
    assert run.init_s == pytest.approx(200, abs=0.1)
    assert run.tokens_per_s == pytest.approx(24 * T / (24 * 130), rel=1e-4)


def test_first_run_stop_counts_as_in_the_official_summarizer() -> None:
    log = Log(records(1))
    place = log.place("run_stop")
    log.records.append(log.copied(place, time_ms=log.records[place]["time_ms"] + 600_000))
    assert summary_of(log.records).minutes == summary_of(records(1)).minutes


def test_last_run_start_before_the_stop_counts() -> None:
    log = Log(records(1))
    place = log.place("block_start", 12)
    log.records.insert(place, log.copied(log.place("run_start"), time_ms=log.records[place]["time_ms"]))
    assert summary_of(log.records).minutes == pytest.approx(12 * 130 / 60, abs=0.01)


def test_what_a_log_does_not_say_is_none() -> None:
    log = Log(records(1))
    for key in ("run_start", "run_stop", "init_stop", "eval_stop", "submission_benchmark"):
        log.without(key)
    run = summary_of(log.records)
    assert (run.minutes, run.init_s, run.tokens_per_s, run.evaluation_s) == (None,) * 4
    assert (run.judged, run.target, run.reached, run.converged) == (None, None, None, False)
    log.without("eval_accuracy")
    assert summary_of(log.records).trained_tokens == 24 * T  # of train_samples


def test_restarts_and_tracked_stats() -> None:
    log = Log(records(1))
    place = log.place("block_stop", 6)
    restart = log.copied(place, key="restart", value=1)
    restart["metadata"]["step"] = 6 * T
    stats = [{"train_step_timing in s": 9.5, "reduced_train_loss": 2.7}, {"throughput": 4e5}, [1]]
    log.records[place:place] = [restart, *(log.copied(place, key="tracked_stats", value=value) for value in stats)]
    run = summary_of(log.records)
    assert [(one.value, one.metadata["step"]) for one in run.restarts] == [(1, 6 * T)]
    assert [one.value for one in run.step_seconds] == [9.5]
    assert [one.value for one in run.losses] == [2.7]
