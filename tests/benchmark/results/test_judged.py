"""What each benchmark is judged by, against its configuration."""

from benchmark.config.benchmarks import REHEARSAL
from benchmark.results.judged import GPT3, JUDGED, REHEARSED


def test_intervals_are_those_of_the_rules() -> None:
    assert [GPT3.eval_interval(size) for size in (1536, 2048, 2688, 8192)] == [16, 12, 10, 3]
    assert GPT3.tokens_per_evaluation(2048) == 50_331_648
    assert GPT3.steps(265 * 1536, 2048) == 199


def test_targets_are_those_that_runs_stop_at() -> None:
    assert JUDGED == {"gpt3": GPT3, "gpt3_rehearsal": REHEARSED}
    for judged in (GPT3, REHEARSED):
        assert judged.target == judged.benchmark.target_log_perplexity
        assert judged.benchmark.mlperf_name == judged.name
    assert REHEARSED.points is not None
    assert REHEARSED.points.is_file()
    assert REHEARSED.learning_rates[0].allowed == (REHEARSAL.optimizer.lr,)
