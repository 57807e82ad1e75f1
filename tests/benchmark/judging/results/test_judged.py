"""What each benchmark is judged by, against its configuration and the official tools."""

from mlperf_logging.benchmark_meta import get_allowed_benchmarks, get_result_file_counts
from mlperf_logging.rcp_checker.rcp_checker import submission_runs

from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B, REHEARSAL, REHEARSAL_LLAMA
from benchmark.judging.results.convergence import points_for
from benchmark.judging.results.judged import GPT3, JUDGED, LLAMA8B, LLAMA405B, OFFICIAL, REHEARSED, REHEARSED_LLAMA

KNOWN_RULESETS = ("3.0.0", "3.1.0", "4.0.0", "4.1.0", "5.0.0", "5.1.0", "6.0.0", "6.1.0")


def test_rulesets_and_runs_are_those_of_the_official_tools() -> None:
    for name, judged in OFFICIAL.items():
        has = [one for one in KNOWN_RULESETS if name in get_allowed_benchmarks("training", one)]
        assert list(judged.rulesets) == has
        assert judged.runs == get_result_file_counts("training")[name] == submission_runs["training"][name]


def test_intervals_are_those_of_the_rules() -> None:
    assert [GPT3.eval_interval(size) for size in (1536, 2048, 2688, 8192)] == [16, 12, 10, 3]
    assert GPT3.tokens_per_evaluation(2048) == GPT3.first_evaluation(2048) == 50_331_648
    assert GPT3.steps(265 * 1536, 2048) == 199
    assert [LLAMA8B.count(LLAMA8B.first_evaluation(size)) for size in (16, 36, 96)] == ["12,288", "12,312", "12,288"]
    older, newer = (LLAMA405B.at(ruleset) for ruleset in ("5.0.0", "5.1.0"))
    assert [older.count(older.first_evaluation(size)) for size in (1152, 1248)] == ["46,080", "46,176"]
    assert [newer.count(newer.first_evaluation(size)) for size in (1152, 960, 576)] == ["276,480", "288,000", "258,048"]


def test_a_score_drops_the_fastest_and_the_slowest() -> None:
    assert (GPT3.middle([3.0, 1.0, 2.0]), GPT3.num_middle_runs, GPT3.middle_words) == (2.0, 1, "middle one of three")
    assert LLAMA8B.middle([90.0, *[5.0] * 7, 6.0, 0.0]) == 41 / 8
    assert LLAMA8B.middle_words == "mean of the middle 8 of 10"


def test_ruleset_adds_its_keys() -> None:
    assert "config_filename" in LLAMA8B.at("6.1.0").configuration
    assert "config_filename" not in LLAMA8B.at("6.0.0").configuration
    assert LLAMA8B.at(None) == LLAMA8B.at("6.1.0")


def test_numbers_are_those_that_runs_are_configured_with() -> None:
    assert list(JUDGED) == ["gpt3", "llama31_8b", "llama31_405b", "gpt3_rehearsal", "llama31_rehearsal"]
    ours = ((GPT3, GPT3_175B), (LLAMA8B, LLAMA31_8B), (REHEARSED, REHEARSAL), (REHEARSED_LLAMA, REHEARSAL_LLAMA))
    for judged, benchmark in ours:
        assert (judged.name, judged.target) == (benchmark.mlperf_name, benchmark.target_log_perplexity)
        assert judged.schedule.max_steps == benchmark.max_steps
        assert judged.evaluation.validation_sequences in (benchmark.evaluation_sequences, 5660, 0)
        assert dict(judged.fixed)[f"opt_{judged.log_keys.optimizer}_epsilon"] == benchmark.optimizer.adam_eps
    for rehearsed, benchmark in ours[2:]:
        assert rehearsed.schedule.learning_rates[0].allowed == (benchmark.optimizer.lr,)
        (point,) = points_for(rehearsed, rehearsed.rulesets[-1])
        assert point.batch_size == benchmark.global_batch_size
        interval = rehearsed.tokens_per_evaluation(point.batch_size)
        assert all(tokens % interval == 0 for tokens in point.tokens)  # in tokens, whatever the log counts in
