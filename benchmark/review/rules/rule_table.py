"""Every rule of our own, in tables by what it is about. What published, accepted logs do is never an error."""

from benchmark.results.subjects import ResultSet, SubmissionPackage
from benchmark.review.findings import Rule, Run
from benchmark.review.rules import (
    clock_rules,
    convergence_rules,
    copy_rules,
    evaluation_rules,
    file_rules,
    hyperparameter_rules,
    key_rules,
    package_rules,
    set_rules,
    system_rules,
)
from benchmark.review.rules.set_rules import Runs
from benchmark.review.rules.system_rules import Described


def facts(ids: str, topic: str = "") -> str:
    """The source of a rule: sections of docs/facts/mlperf_review.md, which name the public sources, and their topic."""
    return f"docs/facts/mlperf_review.md {ids}" + (f"; {topic}" if topic else "")


EVERYTHING = ("",)
"""What a rule explains that leaves nothing else to say of a file."""

LOG_RULES: tuple[Rule[Run], ...] = (
    Rule("record.readable", "error", facts("2.3", "parser"), key_rules.readable),
    Rule("record.well_formed", "warning", facts("2.2"), key_rules.well_formed),
    Rule("file.two_runs", "error", facts("8.3, 3.1", "one file per run"), file_rules.two_runs, explains=EVERYTHING),
    Rule("file.captured_twice", "error", facts("8.3, 3.1"), file_rules.captured_twice, explains=EVERYTHING),
    Rule("file.name", "note", facts("4.2", "file names"), key_rules.file_name),
    Rule("record.misleading_word", "error", facts("4.14", "RCP checker's substring search"), key_rules.misleading),
    Rule("key.present", "error", facts("3.2", "training_*/closed_gpt3.yaml"), key_rules.present),
    Rule("key.once", "error", facts("3.1", "EXACTLY_ONE"), key_rules.not_repeated),
    Rule("key.late", "warning", facts("3.9", "event order"), key_rules.late),
    Rule("value.fixed", "error", facts("3.2", "training rules, hyperparameters"), key_rules.fixed),
    Rule("value.number", "error", facts("3.2"), key_rules.numbers),
    Rule("value.name", "error", facts("3.2"), key_rules.names),
    Rule("value.status", "warning", facts("3.6", "submission_status"), key_rules.status),
    Rule("value.weight_decay", "error", facts("7.7", "fixed values"), key_rules.weight_decay),
    Rule("value.weight_decay_logged", "warning", facts("6.2", "keys in every log"), key_rules.weight_decay_logged),
    Rule("block.metadata", "error", facts("3.4", "block and epoch events"), key_rules.block_metadata),
    Rule("seed.logged", "error", facts("4.4, 7.10", "seed checker"), key_rules.seeds),
    Rule("seed.one", "warning", facts("4.4", "seed checker"), key_rules.one_seed),
    Rule("schedule.formula", "error", facts("7.5", "hyperparameters"), hyperparameter_rules.far_from_formula),
    Rule("schedule.rounding", "note", facts("6.7, 7.5", "hyperparameters"), hyperparameter_rules.near_formula),
    Rule("schedule.base_rate", "error", facts("7.6", "rate by batch size"), hyperparameter_rules.base_learning_rate),
    Rule("schedule.end_rate", "error", facts("7.7", "end learning rate"), hyperparameter_rules.end_learning_rate),
    Rule("schedule.end_rate_ratio", "note", facts("6.7, 7.7", "end rate"), hyperparameter_rules.end_rate_as_ratio),
    Rule("batch.too_large", "error", facts("5.5, 7.6", "batch size"), hyperparameter_rules.batch_too_large),
    Rule("batch.too_small", "warning", facts("5.5, 7.6", "batch size"), hyperparameter_rules.batch_too_small),
    Rule("batch.accumulation", "warning", facts("3.2"), hyperparameter_rules.batch_splits),
    Rule("clock.order", "error", facts("3.9", "event order"), clock_rules.order),
    Rule("clock.plausible", "error", facts("2.2", "time_ms"), clock_rules.plausible_times),
    Rule("clock.backwards", "error", facts("7.3", "timing"), clock_rules.backwards_in_run),
    Rule("clock.backwards_outside", "warning", facts("6.6", "timing"), clock_rules.backwards_elsewhere),
    Rule("clock.duration", "error", facts("7.3", "timing"), clock_rules.no_time),
    Rule("clock.slow_block", "warning", facts("7.3", "no pausing"), clock_rules.slow_blocks),
    Rule("clock.slow_stop", "warning", facts("6.6", "timing"), clock_rules.slow_stop),
    Rule("init.time", "error", facts("3.3, 7.4", "untimed initialisation"), clock_rules.init_time),
    Rule("init.gap", "warning", facts("6.6", "stop-to-start gap"), clock_rules.short_gap),
    Rule("init.long_gap", "error", facts("7.3", "timing"), clock_rules.long_gap),
    Rule("restart.logged", "warning", facts("7.3", "no pausing"), clock_rules.restarts),
    Rule("restart.tokens", "error", facts("8.2", "one token counter"), clock_rules.restart_tokens),
    Rule("eval.tokens", "error", facts("3.5", "eval_accuracy"), evaluation_rules.has_tokens),
    Rule("eval.number", "error", facts("3.5", "eval_accuracy"), evaluation_rules.is_number),
    Rule("eval.target", "error", facts("3.5", "eval_accuracy"), evaluation_rules.meets_target),
    Rule("eval.floor", "error", facts("3.5", "eval_accuracy"), evaluation_rules.below_floor),
    Rule("eval.cadence", "error", facts("7.8", "evaluation cadence"), evaluation_rules.cadence),
    Rule("eval.blocks", "warning", facts("3.9", "block events"), evaluation_rules.blocks_match),
    Rule("eval.pairs", "error", facts("3.9", "event order"), evaluation_rules.eval_pairs),
    Rule("eval.first_value", "error", facts("6.5, 7.2", "reference check"), evaluation_rules.first_value),
    Rule("eval.curve", "error", facts("6.5", "accuracy curves"), evaluation_rules.plausible_curve),
    Rule("eval.unsteady", "warning", facts("6.5", "accuracy curves"), evaluation_rules.unsteady_curve),
    Rule("eval.after_stop", "error", facts("3.9", "event order"), clock_rules.evaluated_after_stop),
    Rule("eval.samples", "warning", facts("6.4", "eval_samples"), evaluation_rules.eval_samples),
    Rule("eval.too_few", "error", facts("7.8", "full validation subset"), evaluation_rules.too_few_eval_samples),
    Rule("stop.at_target", "error", facts("6.5, 7.3", "timing"), evaluation_rules.stops_at_target),
    Rule("stop.status", "error", facts("3.3", "run_stop"), evaluation_rules.stop_status),
    Rule("tokens.logged", "error", facts("6.4", "train_samples"), evaluation_rules.trained_tokens),
    Rule("throughput", "warning", facts("6.3", "tracked_stats"), evaluation_rules.throughput),
)

SET_RULES: tuple[Rule[Runs], ...] = (
    Rule("runs.same_settings", "error", facts("7.9", "submission rules"), set_rules.same_settings),
    Rule("runs.same_names", "warning", facts("7.9", "submission rules"), set_rules.same_names),
    Rule("runs.seeds", "error", facts("7.10", "seeds"), set_rules.different_seeds),
    Rule("runs.different", "error", facts("6.8, 7.9", "runs and scoring"), copy_rules.copied_in_system),
    Rule("runs.alike", "warning", facts("6.8, 7.9", "runs and scoring"), copy_rules.alike_in_system),
    Rule("runs.converged", "error", facts("4.3, 7.9", "runs and scoring"), set_rules.one_may_fail),
    Rule("runs.at_once", "note", facts("7.9", "runs and scoring"), set_rules.not_at_once),
)

RESULT_RULES: tuple[Rule[ResultSet], ...] = (
    Rule("published.copy", "error", facts("6.8, 7.9", "runs and scoring"), copy_rules.published_copy),
    Rule("published.other_name", "error", facts("6.8, 7.9", "runs"), copy_rules.published_under_other_name),
    Rule("published.alike", "warning", facts("6.8, 7.9", "runs and scoring"), copy_rules.published_alike),
    Rule("published.itself", "note", facts("6.8, 7.9", "logs of an earlier round"), copy_rules.published_itself),
    Rule("rcp.test", "error", facts("5.4", "convergence test"), convergence_rules.test),
    Rule("rcp.only_by_void_data", "error", facts("5.10", "the entry at 3072"), convergence_rules.only_by_void_data),
    Rule("rcp.void_data", "warning", facts("5.10", "the entry at 3072"), convergence_rules.void_data),
    Rule("rcp.scaled", "note", facts("5.6", "normalisation"), convergence_rules.scaled),
)

SYSTEM_RULES: tuple[Rule[Described], ...] = (
    Rule("system.readable", "error", facts("4.5", "systems"), system_rules.readable),
    Rule("system.fields", "error", facts("4.5", "mandatory keys"), system_rules.fields),
    Rule("system.strings", "error", facts("4.7", "values that the tools join"), system_rules.strings),
    Rule("system.status", "error", facts("4.6", "status"), system_rules.status),
    Rule("system.division", "error", facts("4.8", "division"), system_rules.division),
    Rule("system.counts", "error", facts("4.7", "int()-able counts"), system_rules.counts),
    Rule("system.filled_in", "error", facts("4.5", "submission rules, system description"), system_rules.filled_in),
    Rule("system.named", "warning", facts("4.5", "submission rules, system description"), system_rules.named),
)

PACKAGE_RULES: tuple[Rule[SubmissionPackage], ...] = (
    Rule("package.layout", "error", facts("4.1", "layout"), package_rules.layout),
    Rule("package.content", "warning", facts("7.12", "submission content"), package_rules.top_level),
    Rule("package.code", "warning", facts("7.12", "submission content"), package_rules.code),
    Rule("package.described", "error", facts("4.3", "systems"), package_rules.described),
    Rule("package.undescribed", "note", facts("4.3", "systems"), package_rules.undescribed),
    Rule("package.benchmark_name", "error", facts("1.4", "skipped benchmarks"), package_rules.benchmark_names),
    Rule("package.other_benchmark", "note", facts("1.4"), package_rules.other_benchmarks),
    Rule("package.three_files", "error", facts("4.2", "file names"), package_rules.file_count),
    Rule("package.unknown_file", "warning", facts("4.2", "file names"), package_rules.unknown_files),
    Rule("package.misplaced", "error", facts("4.1", "layout"), package_rules.misnamed_results),
    Rule("package.names", "error", facts("4.2, 4.12", "repo_checker"), package_rules.friendly_names),
    Rule("package.sizes", "error", facts("4.12", "repo_checker"), package_rules.sizes),
    Rule("package.links", "error", facts("4.12", "repo_checker"), package_rules.links),
    Rule("package.bypass", "error", facts("4.9, 7.11", "bypass"), package_rules.bypass),
    Rule("package.readable_scaling", "error", facts("4.15", "scaling.json"), package_rules.readable_scaling),
    Rule("package.scaling", "warning", facts("4.15, 5.6", "scaling.json"), package_rules.scaling),
    Rule("package.same_run", "error", facts("6.8, 7.9", "runs and scoring"), copy_rules.copied_in_package),
    Rule("package.alike_run", "warning", facts("6.8, 7.9", "runs and scoring"), copy_rules.alike_in_package),
    Rule("package.division", "error", facts("4.8", "division"), package_rules.same_division),
    Rule("package.submitter", "warning", facts("4.1", "submission rules"), package_rules.same_submitter),
)
