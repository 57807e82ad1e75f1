"""Every rule of our own, in tables by what it is about. What published, accepted logs do is never an error."""

from benchmark.review.findings import Rule, Run
from benchmark.review.rules import clock, convergence, evaluations, hyperparameters, keys, packages, sets, systems
from benchmark.review.rules.sets import Runs
from benchmark.review.rules.systems import Described
from benchmark.review.submission import Package, ResultSet

LOG_RULES: tuple[Rule[Run], ...] = (
    Rule("record.readable", "error", "facts 2, parser", keys.readable),
    Rule("record.well_formed", "warning", "facts 2, 3", keys.well_formed),
    Rule("file.name", "note", "facts 4, file names", keys.file_name),
    Rule("record.misleading_word", "error", "facts 4, RCP checker's substring search", keys.misleading),
    Rule("key.present", "error", "facts 3; training_*/closed_gpt3.yaml", keys.present),
    Rule("key.once", "error", "facts 3, EXACTLY_ONE", keys.not_repeated),
    Rule("key.late", "warning", "facts 3, event order", keys.late),
    Rule("value.fixed", "error", "facts 3; training rules, hyperparameters", keys.fixed),
    Rule("value.number", "error", "facts 3", keys.numbers),
    Rule("value.name", "error", "facts 3, 4", keys.names),
    Rule("value.status", "warning", "facts 3, submission_status", keys.status),
    Rule("value.weight_decay", "error", "facts 7, fixed values", keys.weight_decay),
    Rule("value.weight_decay_logged", "warning", "facts 6, keys in every log", keys.weight_decay_logged),
    Rule("block.metadata", "error", "facts 3, block and epoch events", keys.block_metadata),
    Rule("seed.logged", "error", "facts 4, 7, seed checker", keys.seeds),
    Rule("seed.one", "warning", "facts 4, seed checker", keys.one_seed),
    Rule("schedule.formula", "error", "facts 7, hyperparameters", hyperparameters.far_from_formula),
    Rule("schedule.rounding", "warning", "facts 7, hyperparameters", hyperparameters.near_formula),
    Rule("schedule.base_rate", "error", "facts 7, base LR by batch size", hyperparameters.base_learning_rate),
    Rule("schedule.end_rate", "error", "facts 7, end LR", hyperparameters.end_learning_rate),
    Rule("schedule.end_rate_ratio", "warning", "facts 3, 7, end LR", hyperparameters.end_learning_rate_as_ratio),
    Rule("batch.too_large", "error", "facts 5, 7, batch size", hyperparameters.batch_too_large),
    Rule("batch.too_small", "warning", "facts 5, 7, batch size", hyperparameters.batch_too_small),
    Rule("batch.accumulation", "warning", "facts 3", hyperparameters.batch_splits),
    Rule("clock.order", "error", "facts 3, event order", clock.order),
    Rule("clock.plausible", "error", "facts 2, time_ms", clock.plausible_times),
    Rule("clock.backwards", "error", "facts 7, timing", clock.backwards_in_run),
    Rule("clock.backwards_outside", "warning", "facts 7, timing", clock.backwards_elsewhere),
    Rule("clock.duration", "error", "facts 7, timing", clock.no_time),
    Rule("clock.slow_block", "warning", "facts 7, no pausing", clock.slow_blocks),
    Rule("clock.slow_stop", "warning", "facts 7, timing", clock.slow_stop),
    Rule("init.time", "error", "facts 3, 7, untimed init", clock.init_time),
    Rule("init.gap", "warning", "facts 6, stop-to-start gap", clock.short_gap),
    Rule("init.long_gap", "error", "facts 7, timing", clock.long_gap),
    Rule("restart.logged", "warning", "facts 7, no pausing", clock.restarts),
    Rule("restart.tokens", "error", "facts 8.2, one token counter", clock.restart_tokens),
    Rule("eval.tokens", "error", "facts 3, eval_accuracy", evaluations.has_tokens),
    Rule("eval.number", "error", "facts 3, eval_accuracy", evaluations.is_number),
    Rule("eval.target", "error", "facts 3, eval_accuracy", evaluations.meets_target),
    Rule("eval.floor", "error", "facts 3, eval_accuracy", evaluations.below_floor),
    Rule("eval.cadence", "error", "facts 7, eval cadence", evaluations.cadence),
    Rule("eval.blocks", "warning", "facts 3, block events", evaluations.blocks_match),
    Rule("eval.pairs", "error", "facts 3, event order", evaluations.eval_pairs),
    Rule("eval.first_value", "error", "facts 6, 7, reference check", evaluations.first_value),
    Rule("eval.curve", "error", "facts 6, accuracy curves", evaluations.plausible_curve),
    Rule("eval.unsteady", "warning", "facts 6, accuracy curves", evaluations.unsteady_curve),
    Rule("eval.after_stop", "error", "facts 3, event order", clock.evaluated_after_stop),
    Rule("eval.samples", "warning", "facts 6, eval_samples", evaluations.eval_samples),
    Rule("eval.too_few", "error", "facts 7, full validation subset", evaluations.too_few_eval_samples),
    Rule("stop.at_target", "error", "facts 7, timing", evaluations.stops_at_target),
    Rule("stop.status", "error", "facts 3, run_stop", evaluations.stop_status),
    Rule("tokens.logged", "error", "facts 6, train_samples", evaluations.trained_tokens),
    Rule("throughput", "warning", "facts 6, tracked_stats", evaluations.throughput),
)

SET_RULES: tuple[Rule[Runs], ...] = (
    Rule("runs.same_settings", "error", "facts 4; submission rules", sets.same_settings),
    Rule("runs.same_names", "warning", "facts 4; submission rules", sets.same_names),
    Rule("runs.seeds", "error", "facts 4, 7, seeds", sets.different_seeds),
    Rule("runs.different", "error", "facts 7, runs and scoring", sets.different_logs),
    Rule("runs.converged", "error", "facts 4, 7, runs and scoring", sets.one_may_fail),
    Rule("runs.at_once", "note", "facts 7, runs and scoring", sets.not_at_once),
)

CONVERGENCE_RULES: tuple[Rule[ResultSet], ...] = (
    Rule("rcp.test", "error", "facts 5, convergence test", convergence.test),
    Rule("rcp.only_by_void_data", "error", "facts 5, the 4.1.0 entry at 3072", convergence.only_by_void_data),
    Rule("rcp.void_data", "warning", "facts 5, the 4.1.0 entry at 3072", convergence.void_data),
    Rule("rcp.scaled", "note", "facts 5, normalisation", convergence.scaled),
)

SYSTEM_RULES: tuple[Rule[Described], ...] = (
    Rule("system.readable", "error", "facts 4, systems", systems.readable),
    Rule("system.fields", "error", "facts 4, mandatory keys", systems.fields),
    Rule("system.strings", "error", "facts 4, values that the tools join", systems.strings),
    Rule("system.status", "error", "facts 4, status", systems.status),
    Rule("system.division", "error", "facts 4, division", systems.division),
    Rule("system.counts", "error", "facts 4, int()-able counts", systems.counts),
    Rule("system.filled_in", "error", "submission rules, system description", systems.filled_in),
    Rule("system.named", "warning", "submission rules, system description", systems.named),
)

PACKAGE_RULES: tuple[Rule[Package], ...] = (
    Rule("package.layout", "error", "facts 4, layout", packages.layout),
    Rule("package.content", "warning", "facts 7, submission content", packages.top_level),
    Rule("package.code", "warning", "facts 7, submission content", packages.code),
    Rule("package.described", "error", "facts 4, systems", packages.described),
    Rule("package.undescribed", "note", "facts 4, systems", packages.undescribed),
    Rule("package.benchmark_name", "error", "facts 1, 4, skipped benchmarks", packages.benchmark_names),
    Rule("package.other_benchmark", "note", "facts 1", packages.other_benchmarks),
    Rule("package.three_files", "error", "facts 4, file names", packages.file_count),
    Rule("package.unknown_file", "warning", "facts 4, file names", packages.unknown_files),
    Rule("package.misplaced", "error", "facts 4, layout", packages.misnamed_results),
    Rule("package.names", "error", "facts 4, repo_checker", packages.friendly_names),
    Rule("package.sizes", "error", "facts 4, repo_checker", packages.sizes),
    Rule("package.links", "error", "facts 4, repo_checker", packages.links),
    Rule("package.bypass", "error", "facts 4, 7, bypass", packages.bypass),
    Rule("package.scaling", "warning", "facts 4, 5, scaling.json", packages.scaling),
    Rule("package.same_run", "error", "facts 7, runs and scoring", packages.same_run_twice),
    Rule("package.division", "error", "facts 4, division", packages.same_division),
    Rule("package.submitter", "warning", "submission rules", packages.same_submitter),
)
