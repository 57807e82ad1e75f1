"""Mistakes of submitters of Llama 3.1 8B: one change each to a submission without fault, and the rule that tells it."""

import math
from collections.abc import Callable
from dataclasses import replace

from benchmark.judging.review.rules.key_rules import DECAY, WARMUP
from tests.benchmark.judging.review.fixture import (
    LLAMA_N1,
    PROGRESS,
    Log,
    Record,
    Submission,
    as_text,
    made_up,
    records_of,
)
from tests.benchmark.judging.review.llama_changes import (
    both,
    evaluated,
    faster,
    layout,
    made_with,
    precision,
    step_times,
    throughput,
    validation_steps,
    valued,
)
from tests.benchmark.judging.review.submission_changes import Change, abort, each, each_record, fields, keys, run

FOLDER = f"results/{LLAMA_N1.name}/llama31_8b"


def _accelerator(name: str, memory: str, platform: str) -> Change:
    described = fields(accelerator_model_name=name, accelerator_memory_capacity=memory, system_name="acme_x")
    return lambda one: (described(one), valued("submission_platform", platform)(one))


def scaled_clock(statistics: Callable[[Log], object]) -> Change:
    """Run the clock three quarters as fast as the statistics say."""
    return both(each(statistics), faster(4 / 3))


def _in_tokens(record: Record) -> None:
    for name in PROGRESS:
        if name in record["metadata"]:
            record["metadata"][name] *= 8192


def _as_texts(record: Record) -> None:
    if "samples_count" in record["metadata"]:
        record["metadata"]["samples_count"] = str(record["metadata"]["samples_count"])


def _renamed(record: Record) -> None:
    if "samples_count" in record["metadata"]:
        record["metadata"]["epoch_num"] = record["metadata"].pop("samples_count")


def _short_evaluations(log: Log) -> None:
    for number in range(len(log.values)):
        taken = log.time("eval_accuracy", number) - log.time("eval_start", number)
        log.shift(log.place("eval_accuracy", number), -round(0.95 * taken))


def _copied_times(one: Submission) -> None:
    first, second = one.logs[0].records, one.logs[1].records
    start = second[0]["time_ms"]
    for record, other in zip(second, first, strict=True):
        record["time_ms"] = start + round(0.97 * (other["time_ms"] - first[0]["time_ms"]))


def _copied_run(one: Submission) -> None:
    one.logs[1] = Log(records_of(LLAMA_N1, LLAMA_N1.seeds[0]))
    one.logs[1].set("seed", 7)


def _rounded_values(one: Submission) -> None:
    for number, value in enumerate(one.logs[0].values):
        one.logs[1].set("eval_accuracy", round(value, 4), number)


def _scaled_curve(one: Submission) -> None:
    for number, value in enumerate(one.logs[0].values):
        one.logs[1].set("eval_accuracy", 1.001 * value - 0.0033, number)


def _evaluation_left_out(log: Log) -> None:
    place = log.place("eval_start", 4)
    del log.records[place : place + 3]


def _value_again(log: Log) -> None:
    log.set("eval_accuracy", log.values[6], 7)


def _best_of(one: Submission) -> None:
    """Hand in twelve runs' worth: two more beside the ten."""
    for number, seed in enumerate((71_463, 71_469), 10):
        text = made_up(replace(LLAMA_N1, seeds=(seed,))).logs[0]
        one.file(f"benchmarks/llama31_8b/implementations/{one.system}/logs/run_{number}.log", as_text(text.records))


MISTAKES: tuple[tuple[str, str, Change], ...] = (
    # what the rules fix
    ("sequence length 4096", "error value.fixed", valued("max_sequence_length", 4096)),
    ("sequence length 4096 in a key of its own", "error value.fixed", keys(sequence_length=4096)),
    ("16 layers", "error value.fixed", keys(num_layers=16)),
    ("hidden size 2048", "error value.fixed", keys(hidden_size=2048)),
    ("64 heads", "error value.fixed", keys(num_heads=64)),
    ("dropout", "error value.fixed", keys(hidden_dropout=0.1)),
    ("dropout in attention", "error value.fixed", keys(attention_dropout=0.1)),
    ("the vocabulary of Mixtral", "warning value.fixed", keys(vocab_size=32_000)),
    ("the vocabulary of GPT-3", "warning value.fixed", keys(vocab_size=51_200)),
    ("target 3.4", "warning value.fixed", keys(target_accuracy=3.4)),
    ("the target of GPT-3", "warning value.fixed", keys(target_accuracy=2.69)),
    ("adam", "error value.fixed", valued("opt_name", "adam")),
    ("beta 2 of 0.999", "error value.fixed", valued("opt_adamw_beta_2", 0.999)),
    ("beta 1 of 0.95", "error value.fixed", valued("opt_adamw_beta_1", 0.95)),
    ("epsilon 1e-8", "error value.fixed", valued("opt_adamw_epsilon", 1e-8)),
    ("weight decay 0.01", "error value.fixed", valued("opt_adamw_weight_decay", 0.01)),
    ("clip norm 0.5", "error value.fixed", valued("opt_gradient_clip_norm", 0.5)),
    ("half of the steps", "error value.fixed", valued("max_steps", 600_000)),
    ("a schedule of another name", "error value.fixed", valued("opt_learning_rate_decay_schedule", "linear")),
    # rates, warm-up, batch size
    ("the end rate of batch 16", "error schedule.rate", valued("opt_end_learning_rate", 4e-5)),
    ("no decay", "error schedule.rate", valued("opt_end_learning_rate", 8e-4)),
    ("warm-up in samples", "error schedule.formula", valued(WARMUP, 4096)),
    ("decay to the end of the steps", "error schedule.formula", valued(DECAY, 1_200_000)),
    ("a checkpoint's step", "error schedule.formula", valued("init_checkpoint_step", 4000)),
    ("batch 256, above all points", "error batch.size", made_with(256, 30, rate=2e-3, warm_up_samples=65_536)),
    ("batch 8, below all points", "warning batch.size", made_with(8, 13, rate=4e-4, warm_up_samples=256)),
    ("batch in tokens", "error batch.size", valued("global_batch_size", 262_144)),
    ("faster than the reference can", "error rcp.test", made_with(evaluations=12)),
    ("a rate as text", "warning value.kind", valued("opt_base_learning_rate", "8e-4")),
    # evaluations
    ("512 sequences evaluated", "error eval.samples", valued("eval_samples", 512)),
    ("1,056 sequences evaluated", "error eval.samples", valued("eval_samples", 1056)),
    ("tokens instead of samples", "warning eval.cadence", each_record(_in_tokens)),
    ("epoch_num instead of samples_count", "error eval.value", each_record(_renamed)),
    ("perplexity instead of its logarithm", "error eval.target", evaluated(math.exp)),
    ("samples as texts", "error eval.value", each_record(_as_texts)),
    ("values as texts", "error eval.value", each(lambda log: log.set("eval_accuracy", f"{log.values[3]}", 3))),
    ("target met at 3.31", "error eval.target", each(lambda log: log.set("eval_accuracy", 3.31, -1))),
    ("an evaluation left out", "warning eval.cadence", each(_evaluation_left_out)),
    ("evaluations that take a twentieth", "warning eval.time", each(_short_evaluations)),
    ("a start from trained weights", "warning curve.envelope", each(lambda log: log.set("eval_accuracy", 3.9))),
    ("one value far too good", "warning curve.envelope", run(1, lambda log: log.set("eval_accuracy", 3.3001, 4))),
    ("a value below 0", "error eval.value", run(1, lambda log: log.set("eval_accuracy", -2.0, 3))),
    ("another run's values to four decimals", "error runs.copy", _rounded_values),
    ("a value logged again", "warning curve.sudden", run(1, _value_again)),
    ("all values 0.3 better", "warning curve.envelope",
     evaluated(lambda value: value - 0.3 if value > 3.7 else value)),
    # layout and precision
    ("tensor parallel 16 on 8 devices", "warning runs.layout", layout(tensor_parallelism=16)),
    ("pipeline parallel 3 on 8 devices", "warning runs.layout", layout(pipeline_parallelism=3)),
    ("context parallel 16 on 8 devices", "warning runs.layout", layout(context_parallelism=16)),
    ("micro-batches of 7", "warning runs.layout", layout(micro_batch_size=7)),
    ("accumulation of 5", "warning runs.layout", layout(gradient_accumulation_steps=5)),
    ("expert parallel 8 without experts", "warning value.fixed", layout(expert_parallelism=8)),
    ("tensor parallel 2 in one run", "warning runs.settings", run(1, lambda log: log.set("tensor_parallelism", 2))),
    (
        "FP8 in one run", "warning runs.settings",
        run(1, lambda log: log.set("lowest_numerical_precision_in_linear", "fp8")),
    ),
    ("twice the peak of the disclosed BF16", "warning speed.peak", faster(2.5)),
    ("a format that is none", "error value.kind", precision("mxfp8")),
    ("tensor parallel 0", "error value.kind", layout(tensor_parallelism=0)),
    ("micro-batches as text", "error value.kind", each(lambda log: log.set("micro_batch_size", "1"))),
    ("no name of the configuration", "error value.kind", valued("config_filename", "")),
    ("ten times the peak", "error speed.peak", both(precision("fp8"), faster(12))),
    ("ten times a peak that nobody looked up", "warning speed.peak",
     both(_accelerator("NVIDIA H100 NVL", "94 GB", "8xH100-NVL"), precision("fp8"), faster(12))),
    # clocks
    ("the clock x 0.75, step times as they were", "warning speed.steps",
     scaled_clock(lambda log: step_times(log, 0.95))),
    ("the clock x 0.75, throughput as it was", "warning speed.steps",
     scaled_clock(lambda log: throughput(log, 0.97))),
    ("the clock x 0.75, steps of evaluations as they were", "warning speed.steps", scaled_clock(validation_steps)),
    ("half of the steps of evaluations", "warning eval.time", each(lambda log: validation_steps(log, 16))),
    ("half a minute between init_stop and run_start", "warning init.untimed",
     each(lambda log: log.shift(log.place("run_start"), 60_000))),
    ("initialised for half an hour", "error init.time",
     each(lambda log: log.shift(log.place("init_stop"), 31 * 60_000))),
    ("initialised in a fifth of a second", "warning init.time",
     each(lambda log: log.set_time("init_start", log.time("init_stop") - 200))),
    ("the times of one run on another's values", "error runs.copy", _copied_times),
    # sets of runs
    ("a log submitted again with another seed", "error runs.copy", _copied_run),
    ("one seed for all runs", "error runs.seeds", valued("seed", 42)),
    ("two runs failed", "error runs.failed",
     both(run(0, lambda log: abort(log, 9)), run(1, lambda log: abort(log, 9)))),
    ("nine runs", "error package.layout", lambda one: one.logs.pop()),
    ("eleven runs", "error package.layout", lambda one: one.logs.append(Log(records_of(LLAMA_N1, 71_463)))),
    ("more runs than are counted", "warning package.stray_run", _best_of),
    ("another rate in one run", "error runs.settings",
     run(3, lambda log: [log.set("opt_base_learning_rate", 4e-4), log.set("opt_end_learning_rate", 4e-5)])),
    ("another batch in one run", "error runs.settings", run(2, lambda log: log.set("global_batch_size", 64))),
    ("the open division in one run", "error runs.settings", run(2, lambda log: log.set("submission_division", "open"))),
    ("a curve that is another run's, scaled", "error runs.copy", _scaled_curve),
    # names
    ("twice the devices in the platform", "warning named.counts", valued("submission_platform", "16xH100")),
    ("a template's organisation", "warning named.placeholder", valued("submission_org", "SUBMISSION_ORG_PLACEHOLDER")),
    ("another organisation", "warning named.submitter", valued("submission_org", "Umbrella Computing")),
    ("B200 in the log, H100 in the description", "warning named.accelerator", valued("submission_platform", "DGXB200")),
    ("GB300 in the log, B200 in the description", "warning named.accelerator",
     _accelerator("NVIDIA B200-SXM-180GB", "180 GB", "8xGB300")),
    ("a benchmark that is none", "error value.benchmark", valued("submission_benchmark", "llama3_8b")),
    ("the folder of the 405B", "error value.benchmark", valued("submission_benchmark", "llama31_405b")),
    ("no key of the parallel layout", "error key.present", each(lambda log: log.without("tensor_parallelism"))),
    ("no precision", "error key.present", each(lambda log: log.without("lowest_numerical_precision_in_comm"))),
    ("no status with run_stop", "error stop.status", each(lambda log: log.metadata("run_stop", remove=("status",)))),
    ("memory of another device", "warning system.memory", fields(accelerator_memory_capacity="141 GB")),
)  # fmt: skip
"""Name, severity and rule that must be told, and the change."""
WITH_CONSEQUENCES = (
    "batch 256, above all points", "batch 8, below all points", "batch in tokens", "faster than the reference can",
    "tokens instead of samples", "epoch_num instead of samples_count", "perplexity instead of its logarithm",
    "target met at 3.31", "an evaluation left out", "tensor parallel 2 in one run", "two runs failed",
    "another rate in one run", "another batch in one run", "GB300 in the log, B200 in the description",
    "the folder of the 405B", "no status with run_stop", "the open division in one run",
)  # fmt: skip
"""Mistakes that raise several findings."""
