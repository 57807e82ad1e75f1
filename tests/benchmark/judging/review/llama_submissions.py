"""Mistakes and honest variants of Llama 3.1 8B's submissions, one change each to a submission without fault."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

from benchmark.judging.review.rules.key_rules import DECAY, WARMUP
from tests.benchmark.judging.review.fixture import (
    LLAMA_N1,
    ORG,
    PROGRESS,
    SEEDS,
    Log,
    Record,
    Submission,
    as_text,
    made_up,
    records_of,
)
from tests.benchmark.judging.review.honest_submissions import abort, each, fields, keys, run, trained

Change = Callable[[Submission], object]
FOLDER = f"results/{LLAMA_N1.name}/llama31_8b"


def valued(key: str, value: object) -> Change:
    return each(lambda log: log.set(key, value))


def evaluated(change: Callable[[float], float]) -> Change:
    return each(lambda log: [log.set("eval_accuracy", change(value), n) for n, value in enumerate(log.values)])


def made_with(
    batch_size: int = 32, evaluations: int = 15, *, rate: float = 8e-4, warm_up_samples: int = 4096, speed: float = 1.0
) -> Change:
    """Make all runs anew with these settings."""
    optimizer = replace(LLAMA_N1.benchmark.optimizer, lr=rate, min_lr=rate / 10, lr_warmup_samples=warm_up_samples)
    benchmark = replace(LLAMA_N1.benchmark, global_batch_size=batch_size, optimizer=optimizer)
    made = replace(
        LLAMA_N1,
        benchmark=benchmark,
        evaluations=evaluations,
        block_ms=round(LLAMA_N1.block_ms / speed),
        evaluation_ms=round(LLAMA_N1.evaluation_ms / speed),
    )

    def change(one: Submission) -> None:
        one.logs = [Log(records_of(made, seed)) for seed in made.seeds]

    return change


def _layout(**values: int) -> Change:
    return each(lambda log: [log.set(key, value) for key, value in values.items()])


def _accelerator(name: str, memory: str, platform: str) -> Change:
    described = fields(accelerator_model_name=name, accelerator_memory_capacity=memory, system_name="acme_x")
    return lambda one: (described(one), valued("submission_platform", platform)(one))


def _precision(name: str) -> Change:
    return valued("lowest_numerical_precision_in_linear", name)


def _both(*changes: Change) -> Change:
    return lambda one: [change(one) for change in changes]


def faster(factor: float) -> Change:
    return each(lambda log: log.stretch(lambda _: 1 / factor))


def _step_times(log: Log, share: float) -> None:
    """Log the mean time of a block's steps at its end, as a share of the block."""
    size = log.records[log.place("global_batch_size")]["value"]
    for before, place in [*itertools.pairwise(log.places("eval_accuracy"))][::-1]:
        seconds = (log.records[place]["time_ms"] - log.records[before]["time_ms"]) / 1000
        steps = (trained(log.records[place]) - trained(log.records[before])) / size
        log.records.insert(
            place, log.copied(place, key="tracked_stats", value={"train_step_time": share * seconds / steps})
        )


def _compiled_step(log: Log) -> None:
    _step_times(log, 0.95)
    log.records[log.place("tracked_stats")]["value"]["train_step_time"] *= 1.6


def _throughput(log: Log, share: float) -> None:
    """Log the samples per second of each block's steps, whose time is a share of the block."""
    for before, place in [*itertools.pairwise(log.places("eval_accuracy"))][::-1]:
        seconds = (log.records[place]["time_ms"] - log.records[before]["time_ms"]) / 1000
        samples = trained(log.records[place]) - trained(log.records[before])
        log.records.insert(
            place, log.copied(place, key="tracked_stats", value={"throughput": samples / seconds / share})
        )


def _validation_steps(log: Log, count: int = 32, share: float = 0.98) -> None:
    """Log so many steps of each evaluation, which take a share of it."""
    for number in range(len(log.values)):
        place = log.place("eval_accuracy", number)
        seconds = (log.time("eval_accuracy", number) - log.time("eval_start", number)) / 1000
        value = {"validation_step_time": share * seconds / count}
        log.records[place:place] = [log.copied(place, key="tracked_stats", value=value) for _ in range(count)]


def _throughput_so_far(log: Log) -> None:
    log.shift(log.place("block_stop"), 60_000)
    start = log.time("run_start")
    for place in log.places("eval_accuracy")[::-1]:
        seconds = (log.records[place]["time_ms"] - start) / 1000
        value = {"throughput": trained(log.records[place]) / seconds}
        log.records.insert(place, log.copied(place, key="tracked_stats", value=value))


def _validation_seconds(log: Log) -> None:
    for number in range(len(log.values)):
        log.insert(
            "eval_accuracy", "tracked_stats", {"validation_time": 33.0, "validation_throughput": 31.0}, number=number
        )


def _losses(log: Log) -> None:
    for number in range(len(log.values)):
        log.insert("block_stop", "tracked_stats", {"reduced_train_loss": 3.4, "grad_norm": 0.7}, number=number)


def _corrected_clock(log: Log) -> None:
    for block, moved_ms in ((4, -350), (7, 400), (10, -900)):
        log.shift(log.place("block_start", block) + 1, moved_ms)


def _untrained(log: Log) -> None:
    log.insert("block_start", "eval_accuracy", 11.76, 0, 1, samples_count=0)


def scaled_clock(statistics: Callable[[Log], object]) -> Change:
    """Run the clock three quarters as fast as the statistics say."""
    return _both(each(statistics), faster(4 / 3))


def _in_tokens(record: Record) -> None:
    for name in PROGRESS:
        if name in record["metadata"]:
            record["metadata"][name] *= 8192


def _renamed(record: Record) -> None:
    if "samples_count" in record["metadata"]:
        record["metadata"]["epoch_num"] = record["metadata"].pop("samples_count")


def records(change: Callable[[Record], object]) -> Change:
    return each(lambda log: [change(record) for record in log.records])


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
    # evaluations
    ("512 sequences evaluated", "error eval.samples", valued("eval_samples", 512)),
    ("1,056 sequences evaluated", "error eval.samples", valued("eval_samples", 1056)),
    ("tokens instead of samples", "warning eval.cadence", records(_in_tokens)),
    ("epoch_num instead of samples_count", "error eval.value", records(_renamed)),
    ("perplexity instead of its logarithm", "error eval.target", evaluated(math.exp)),
    ("values as texts", "error eval.value", each(lambda log: log.set("eval_accuracy", f"{log.values[3]}", 3))),
    ("target met at 3.31", "error eval.target", each(lambda log: log.set("eval_accuracy", 3.31, -1))),
    ("an evaluation left out", "warning eval.cadence", each(_evaluation_left_out)),
    ("evaluations that take a twentieth", "warning eval.time", each(_short_evaluations)),
    ("a start from trained weights", "warning curve.envelope", each(lambda log: log.set("eval_accuracy", 3.9))),
    ("one value far too good", "warning curve.envelope", run(1, lambda log: log.set("eval_accuracy", 3.3001, 4))),
    ("a value logged again", "warning curve.sudden", run(1, _value_again)),
    ("all values 0.3 better", "warning curve.envelope",
     evaluated(lambda value: value - 0.3 if value > 3.7 else value)),
    # layout and precision
    ("tensor parallel 16 on 8 devices", "warning runs.layout", _layout(tensor_parallelism=16)),
    ("pipeline parallel 3 on 8 devices", "warning runs.layout", _layout(pipeline_parallelism=3)),
    ("context parallel 16 on 8 devices", "warning runs.layout", _layout(context_parallelism=16)),
    ("micro-batches of 7", "warning runs.layout", _layout(micro_batch_size=7)),
    ("accumulation of 5", "warning runs.layout", _layout(gradient_accumulation_steps=5)),
    ("tensor parallel 2 in one run", "warning runs.settings", run(1, lambda log: log.set("tensor_parallelism", 2))),
    (
        "FP8 in one run", "warning runs.settings",
        run(1, lambda log: log.set("lowest_numerical_precision_in_linear", "fp8")),
    ),
    ("twice the peak of the disclosed BF16", "warning speed.peak", faster(2.5)),
    ("a format that is none", "error value.kind", _precision("mxfp8")),
    ("tensor parallel 0", "error value.kind", _layout(tensor_parallelism=0)),
    ("micro-batches as text", "error value.kind", each(lambda log: log.set("micro_batch_size", "1"))),
    ("no name of the configuration", "error value.kind", valued("config_filename", "")),
    ("ten times the peak", "error speed.peak", _both(_precision("fp8"), faster(12))),
    ("ten times a peak that nobody looked up", "warning speed.peak",
     _both(_accelerator("NVIDIA H100 NVL", "94 GB", "8xH100-NVL"), _precision("fp8"), faster(12))),
    # clocks
    ("the clock x 0.75, step times as they were", "warning speed.steps",
     scaled_clock(lambda log: _step_times(log, 0.95))),
    ("the clock x 0.75, throughput as it was", "warning speed.steps",
     scaled_clock(lambda log: _throughput(log, 0.97))),
    ("the clock x 0.75, steps of evaluations as they were", "warning speed.steps", scaled_clock(_validation_steps)),
    ("half of the steps of evaluations", "warning eval.time", each(lambda log: _validation_steps(log, 16))),
    ("half a minute between init_stop and run_start", "warning init.untimed",
     each(lambda log: log.shift(log.place("run_start"), 60_000))),
    ("initialised for half an hour", "error init.time",
     each(lambda log: log.shift(log.place("init_stop"), 31 * 60_000))),
    ("the times of one run on another's values", "error runs.copy", _copied_times),
    # sets of runs
    ("a log submitted again with another seed", "error runs.copy", _copied_run),
    ("one seed for all runs", "error runs.seeds", valued("seed", 42)),
    ("two runs failed", "error runs.failed",
     _both(run(0, lambda log: abort(log, 9)), run(1, lambda log: abort(log, 9)))),
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


def _decimals(digits: int) -> Change:
    return evaluated(lambda value: round(value, digits))


def _without_blocks(log: Log) -> None:
    log.without("block_start", "block_stop")


def _broken_off(log: Log) -> None:
    log.records = log.records[: log.place("eval_accuracy", 6)]


def _noise(log: Log, size: float) -> None:
    for number, value in enumerate(log.values[:-1]):
        log.set("eval_accuracy", max(3.3001, value + size * (-1) ** number), number)


VARIANTS: tuple[tuple[str, Change], ...] = (
    ("target and vocabulary named", keys(target_accuracy=3.3, vocab_size=128_256)),
    ("the README's vocabulary", keys(vocab_size=128_000)),
    ("a vocabulary padded to 128 x 8", keys(vocab_size=129_024)),
    ("a vocabulary padded to 128 x 32", keys(vocab_size=131_072)),
    ("the model's sizes", keys(num_layers=32, hidden_size=4096, num_heads=32, hidden_dropout=0.0)),
    ("keys of NeMo", keys(number_of_ranks=8, number_of_nodes=1, trainer="nemo", fp8_recipe="mxfp8")),
    ("max_steps as a float", valued("max_steps", 1_200_000.0)),
    ("float32 end rate", valued("opt_end_learning_rate", 7.999999797903001e-05)),
    ("values of three decimals", _decimals(3)),
    ("values of float32", evaluated(lambda value: float(f"{value:.7g}"))),
    ("noise of 0.01", each(lambda log: _noise(log, 0.005))),
    ("batch 16", made_with(16, 14, rate=4e-4, warm_up_samples=256)),
    ("batch 64", made_with(64, 19, warm_up_samples=6144)),
    ("batch 96", made_with(96, 23, rate=1e-3, warm_up_samples=16_348)),
    ("batch 128", made_with(128, 29, rate=2e-3, warm_up_samples=32_768)),
    ("batch 24, with a rate of its own", made_with(24, 15, rate=6e-4, warm_up_samples=1024)),
    ("batch 32 with the rate 1e-3", made_with(rate=1e-3, warm_up_samples=8192)),
    ("no warm-up", made_with(warm_up_samples=0)),
    ("slower than the reference", made_with(evaluations=19)),
    ("FP8 at 1.5 times the speed", _both(_precision("fp8"), faster(1.5))),
    ("a format of four bits", _precision("nvfp4")),
    ("a quarter of the speed", each(lambda log: log.stretch(lambda _: 4.0))),
    ("tensor parallel 2", _layout(tensor_parallelism=2, micro_batch_size=1, gradient_accumulation_steps=8)),
    ("pipeline parallel 2", _layout(tensor_parallelism=4, pipeline_parallelism=2)),
    ("context parallel 2", _layout(tensor_parallelism=2, context_parallelism=4)),
    ("tensor parallel 8", _layout(tensor_parallelism=8, micro_batch_size=1, gradient_accumulation_steps=32)),
    ("micro-batch 2", _layout(micro_batch_size=2, gradient_accumulation_steps=16)),
    ("step times of 95 % of the block", each(lambda log: _step_times(log, 0.95))),
    ("a first mean step that was compiled", each(_compiled_step)),
    ("step times of 60 % of the block", each(lambda log: _step_times(log, 0.60))),
    ("step times of 100.3 % of the block", each(lambda log: _step_times(log, 1.003))),
    ("throughput of steps that take 94 % of the block", each(lambda log: _throughput(log, 0.94))),
    ("throughput of each of 8 devices", each(lambda log: _throughput(log, 8))),
    ("throughput in tokens", each(lambda log: _throughput(log, 1 / 8192))),
    ("throughput since run_start, evaluations and a first block of compilations in it", each(_throughput_so_far)),
    ("seconds and throughput of evaluations", each(_validation_seconds)),
    ("losses and norms", each(_losses)),
    ("clocks corrected by NTP by less than a second", each(_corrected_clock)),
    ("seeds of 64 bits", each(lambda log: log.set("seed", 2**63 - log.records[log.place("seed")]["value"]))),
    ("seeds below 0", each(lambda log: log.set("seed", -log.records[log.place("seed")]["value"]))),
    ("the untrained model evaluated first", each(_untrained)),
    ("steps of evaluations", each(_validation_steps)),
    ("the mean step of each evaluation", each(lambda log: _validation_steps(log, 1, 1 / 32))),
    ("steps of evaluations that overlap", each(lambda log: _validation_steps(log, share=1.05))),
    ("no blocks but an epoch", each(_without_blocks)),
    ("a spike of 2 that recovers", run(1, lambda log: log.set("eval_accuracy", 6.1, 7))),
    ("one run that failed", run(4, lambda log: abort(log, 9))),
    ("one run that broke off", run(4, _broken_off)),
    ("a second before run_start", each(lambda log: log.shift(log.place("run_start"), 900))),
    ("initialised for a second", each(lambda log: log.set_time("init_start", log.time("init_stop") - 1000))),
    ("initialised for 20 minutes", each(lambda log: log.shift(log.place("init_stop"), 20 * 60_000))),
    ("seeds of five digits", lambda one: [log.set("seed", 10_007 + 911 * n) for n, log in enumerate(one.logs)]),
    ("seeds that follow each other", lambda one: [log.set("seed", SEEDS[0] + n) for n, log in enumerate(one.logs)]),
    ("a platform with the devices", valued("submission_platform", "8xH100-SXM5-80GB")),
    ("a platform without devices", valued("submission_platform", f"{ORG.lower()}-cluster")),
)  # fmt: skip
"""What honest submitters of Llama do beside the variants of honest_submissions.py."""
