"""Conventions of other submitters, other frameworks and older rounds. None of it may be rejected."""

import json
import random
import struct
from typing import Any

from tests.benchmark.review.damage import Log
from tests.benchmark.review.trials.honest_runs import true_throughput
from tests.benchmark.review.trials.log_changes import ends, fields, insert, raw, set_steps, stretch, values
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import Change, TrialTable

honest = TrialTable()
KEYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vocabulary padded", {"vocab_size": 51200, "padded_vocab_size": 51200}),
    ("vocabulary padded to 128", {"padded_vocab_size": 50304}),
    ("data set in words", {"dataset": "allenai/c4 en 3.0.1", "data_name": "C4"}),
    ("optimizer by its class", {"optimizer": "DistributedFusedAdam", "optimizer_type": "AdamW"}),
    ("optimizer of Megatron-Core", {"optimizer": "mcore_distributed_optim"}),
    ("precisions", {"precision": "bf16-mixed", "fp8_recipe": "hybrid", "amax_history_len": 128}),
    ("attention without groups", {"num_query_groups": 96, "multi_query_attention": False, "sliding_window": None}),
    ("rates again under other names", {"lr": 2e-5, "min_lr": 2e-6, "weight_decay": 0.1, "adam_beta2": 0.95}),
    ("dropout under other names", {"dropout": 0, "attention_dropout_rate": 0.0, "layerdrop": 0}),
    ("experts none", {"num_experts": None, "moe_num_experts": 0, "ema_decay": None}),
    ("batch size without growth", {"rampup_batch_size": None, "curriculum_seqlen": 2048}),
    ("parameters exactly", {"num_parameters": 175_181_291_520}),
    ("a checkpoint by its name", {"init_checkpoint": "ckpt4000-consumed_samples=0", "checkpoint_format": "zarr"}),
    ("parallel layout", {"tensor_parallel": 8, "pp": 16, "interleaving": 6, "dp": 4, "sequence_parallel": True}),
    ("keys of HPU", {"hidden_dropout": 0.0, "attention_dropout": 0.0, "tokenizer": "SPM", "dataset": "C4"}),
    ("clip of gradients again", {"clip_grad": 1.0, "gradient_clip_val": 1}),
    ("split of the data in words", {"validation_split": "validation", "train_split": "train[75%:]"}),
)  # fmt: skip


def _with_keys(extra: dict[str, Any]) -> Change:
    def change(one: SubmissionOnTrial) -> None:
        for log in one.logs:
            for key, value in extra.items():
                insert(log, "init_stop", key, value)

    return change


for _words, _extra in KEYS:
    honest(f"keys of its own: {_words}")(_with_keys(_extra))


@honest("values of single precision")
def _single(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        raw(log, [struct.unpack("f", struct.pack("f", value))[0] for value in values(log)])


@honest("a namespace of the framework on every record")
def _namespace(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for record in log.records:
            record["namespace"] = "worker0"


@honest("fields of its own in every record, in another order")
def _fields(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        log.records = [{"rank": 0, "host": "n1", **dict(reversed(record.items()))} for record in log.records]


@honest("records without file and line of the code, but for seeds")
def _no_source(one: SubmissionOnTrial) -> None:
    """Of seeds the official checker wants them."""
    for log in one.logs:
        for record in (each for each in log.records if each["key"] != "seed"):
            for name in ("file", "lineno"):
                record["metadata"].pop(name, None)


@honest("the run's folder in the file of every record")
def _own_folder(one: SubmissionOnTrial) -> None:
    for number, log in enumerate(one.logs):
        for record in log.records:
            record["metadata"]["file"] = f"/scratch/job_{48151 + number}/code/{record['metadata'].get('file', 'a.py')}"


@honest("cache_clear without a value")
def _no_value(one: SubmissionOnTrial) -> None:
    one.each(lambda log: log.set("cache_clear", None))


@honest("progress bars with carriage returns between the records")
def _bars(one: SubmissionOnTrial) -> None:
    bar = b"\rEpoch 0: 10%|#  | 1/10 [00:09]\rEpoch 0: 20%|## | 2/10 [00:18]\n"
    one.log_bytes(lambda content: content.replace(b"\n", b"\n" + bar))


@honest("a time and colours before every record")
def _coloured(one: SubmissionOnTrial) -> None:
    prefix = b"\x1b[32m[rank0] 2024-10-09 12:00:01,123 INFO\x1b[0m "
    one.log_bytes(lambda content: b"".join(prefix + line + b"\n" for line in content.splitlines()))


@honest("the first block a minute longer: compiled there")
def _compiled(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        log.shift(log.place("eval_accuracy"), 60_000)
        true_throughput(log)


@honest("the first three blocks 5 % slower: tuned there", "made", "tpu")
def _tuned(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(3):
            places = ends(log)
            start = (
                log.records[places[number - 1]]["time_ms"] if number else log.records[log.place("run_start")]["time_ms"]
            )
            log.shift(places[number], round(0.05 * (log.records[places[number]]["time_ms"] - start)))


@honest("one run 2 % slower: a warm day")
def _warm(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    stretch(log, 1.02)
    set_steps(log, lambda value: value * 1.02)
    true_throughput(log)


@honest("one run 12 % slower: a slow node all along")
def _slow_node(one: SubmissionOnTrial) -> None:
    log = one.logs[2]
    stretch(log, 1.12)
    set_steps(log, lambda value: value * 1.12)
    true_throughput(log)


@honest("throughput in sequences per second", "steps")
def _sequences(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        true_throughput(log)
        set_steps(log, lambda value: value / 2048, ("throughput",))


@honest("throughput per device", "steps")
def _per_device(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        true_throughput(log)
        set_steps(log, lambda value: value / 512, ("throughput",))


@honest("the checkpoint evaluated at the start, as a value of its own")
def _at_start(one: SubmissionOnTrial) -> None:
    for number, log in enumerate(one.logs):
        place = log.place("block_start")
        record = log.copied(log.place("eval_accuracy"), value=2.7767 + 1e-4 * number, key="initial_eval_loss")
        record["metadata"]["epoch_num"] = 0
        record["time_ms"] = log.records[place]["time_ms"]
        log.records.insert(place, record)


@honest("a seed of every rank")
def _seeds(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        first = log.records[log.place("seed")]["value"]
        for rank in range(1, 64):
            insert(log, "global_batch_size", "seed", first + 1000 * rank)


@honest("seeds of 63 bits")
def _long_seeds(one: SubmissionOnTrial) -> None:
    draw = random.Random(3)
    one.each(lambda log: log.set("seed", draw.randrange(1 << 62, 1 << 63)))


@honest("power as a plain file")
def _power_file(one: SubmissionOnTrial) -> None:
    one.file(f"{one.results}/power", "measured, not submitted\n")


@honest("an organisation of several words and signs")
def _several_words(one: SubmissionOnTrial) -> None:
    name = f"{one.org} & Søn (東京)"
    one.description["submitter"] = name
    one.each(lambda log: log.set("submission_org", name))


@honest("another benchmark beside it")
def _other_benchmark(one: SubmissionOnTrial) -> None:
    for number in range(10):
        one.file(f"results/{one.system}/bert/result_{number}.txt", ":::MLLOG not ours\n")
    one.file("benchmarks/bert/implementations/x/README.md", "bert\n")


@honest("files of licences")
def _licences(one: SubmissionOnTrial) -> None:
    for name in ("LICENSE.md", "CITATION.cff", "NOTICE", "CHANGELOG"):
        one.file(name, "text\n")


@honest("scripts that read logs, and a log line in the instructions")
def _scripts(one: SubmissionOnTrial) -> None:
    one.file(f"{one.code}/parse.py", "for line in open('result_0.txt'):\n    print(':::MLLOG {' in line)\n")
    one.file(f"{one.code}/docs/run.md", 'It prints `:::MLLOG {"key": "run_start", "value": null}`.\n')


for _name, _content in (
    ("memory in MiB", {"accelerator_memory_capacity": "81559MiB"}),
    ("memory with its kind", {"accelerator_memory_capacity": "80 GB HBM3"}),
    ("notes about what is to come", {"hw_notes": "GPU TDP: 700W. Preview of the next driver was not used."}),
    ("unknown caches", {"host_processor_caches": "unknown", "accelerator_frequency": "N/A"}),
):
    honest(f"description: {_name}", "steps", "made")(fields(**_content))


@honest("description written by another tool: escaped, indented by tabs")
def _escaped(one: SubmissionOnTrial) -> None:
    one.description["cooling"] = "eau à 18 °C"
    content = json.dumps(one.description, indent="\t", ensure_ascii=True, sort_keys=True)
    one.file(one.description_path, content)


def _drifting(log: Log) -> None:
    start, stop = log.place("run_start"), log.place("run_stop")
    begun, length = log.records[start]["time_ms"], log.records[stop]["time_ms"] - log.records[start]["time_ms"]
    for record in log.records[start:]:
        share = (record["time_ms"] - begun) / length
        record["time_ms"] += round(0.01 * length * share * share)


@honest("two percent slower at the end in every run: it gets warm", "made", "tpu")
def _warmer(one: SubmissionOnTrial) -> None:
    one.each(_drifting)
