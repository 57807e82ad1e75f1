"""What honest submitters of Llama 3.1 8B do beside the variants of honest_submissions.py, one change each."""

from tests.benchmark.judging.review.fixture import (
    LLAMA_N1,
    ORG,
    SEEDS,
    Log,
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
from tests.benchmark.judging.review.submission_changes import Change, abort, each, keys, run, trained

FOLDER = f"results/{LLAMA_N1.name}/llama31_8b"


def _compiled_step(log: Log) -> None:
    step_times(log, 0.95)
    log.records[log.place("tracked_stats")]["value"]["train_step_time"] *= 1.6


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
    ("FP8 at 1.5 times the speed", both(precision("fp8"), faster(1.5))),
    ("a format of four bits", precision("nvfp4")),
    ("a quarter of the speed", each(lambda log: log.stretch(lambda _: 4.0))),
    ("tensor parallel 2", layout(tensor_parallelism=2, micro_batch_size=1, gradient_accumulation_steps=8)),
    ("pipeline parallel 2", layout(tensor_parallelism=4, pipeline_parallelism=2)),
    ("context parallel 2", layout(tensor_parallelism=2, context_parallelism=4)),
    ("tensor parallel 8", layout(tensor_parallelism=8, micro_batch_size=1, gradient_accumulation_steps=32)),
    ("micro-batch 2", layout(micro_batch_size=2, gradient_accumulation_steps=16)),
    ("step times of 95 % of the block", each(lambda log: step_times(log, 0.95))),
    ("a first mean step that was compiled", each(_compiled_step)),
    ("step times of 60 % of the block", each(lambda log: step_times(log, 0.60))),
    ("step times of 100.3 % of the block", each(lambda log: step_times(log, 1.003))),
    ("throughput of steps that take 94 % of the block", each(lambda log: throughput(log, 0.94))),
    ("throughput of each of 8 devices", each(lambda log: throughput(log, 8))),
    ("throughput in tokens", each(lambda log: throughput(log, 1 / 8192))),
    ("throughput since run_start, evaluations and a first block of compilations in it", each(_throughput_so_far)),
    ("seconds and throughput of evaluations", each(_validation_seconds)),
    ("losses and norms", each(_losses)),
    ("clocks corrected by NTP by less than a second", each(_corrected_clock)),
    ("seeds of 64 bits", each(lambda log: log.set("seed", 2**63 - log.records[log.place("seed")]["value"]))),
    ("seeds below 0", each(lambda log: log.set("seed", -log.records[log.place("seed")]["value"]))),
    ("the untrained model evaluated first", each(_untrained)),
    ("steps of evaluations", each(validation_steps)),
    ("the mean step of each evaluation", each(lambda log: validation_steps(log, 1, 1 / 32))),
    ("steps of evaluations that overlap", each(lambda log: validation_steps(log, share=1.05))),
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
