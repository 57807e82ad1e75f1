"""Conventions of other submitters, other frameworks and older rounds. None of it may be rejected."""

import json
from typing import Any

from tests.benchmark.review.trials.honest_runs import true_throughput
from tests.benchmark.review.trials.log_changes import PROGRESS, fields, insert, set_steps, steps, stretch
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import Change, TrialTable

honest = TrialTable()
KEYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("data, optimizer, precisions", {"dataset": "c4/en", "optimizer": "AdamW", "precision": "bf16-mixed", "ema": None}),
    ("rates under other names", {"lr": 2e-5, "min_lr": 2e-6, "weight_decay": 0.1, "dropout": 0, "clip_grad": 1.0}),
    ("parallel layout", {"tensor_parallel": 8, "pp": 16, "dp": 4, "sequence_parallel": True, "vocab_size": 51200}),
    ("keys of HPU", {"hidden_dropout": 0.0, "attention_dropout": 0.0, "num_layers": 96, "tokenizer": "SPM"}),
)


def _with_keys(extra: dict[str, Any]) -> Change:
    def change(one: SubmissionOnTrial) -> None:
        for log in one.logs:
            for key, value in extra.items():
                insert(log, "init_stop", key, value)

    return change


for _words, _extra in KEYS:
    honest(f"keys of its own: {_words}")(_with_keys(_extra))


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
        record["metadata"] |= {name: 0 for name in PROGRESS if name in record["metadata"]}
        record["time_ms"] = log.records[place]["time_ms"]
        log.records.insert(place, record)


@honest("a seed of every rank")
def _seeds(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        first = log.records[log.place("seed")]["value"]
        for rank in range(1, 64):
            insert(log, "global_batch_size", "seed", first + 1000 * rank)


@honest("an organisation of several words and signs")
def _several_words(one: SubmissionOnTrial) -> None:
    name = f"{one.org} & Søn (東京)"
    one.description["submitter"] = name
    one.each(lambda log: log.set("submission_org", name))


@honest("another benchmark beside it", "made", "steps", "tpu")
def _other_benchmark(one: SubmissionOnTrial) -> None:
    for number in range(10):
        one.file(f"results/{one.system}/bert/result_{number}.txt", ":::MLLOG not ours\n")
    one.file("benchmarks/bert/implementations/x/README.md", "bert\n")


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


@honest("values logged behind eval_stop")
def _behind(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for place in range(len(log.records) - 1):
            if log.records[place]["key"] == "eval_accuracy" and log.records[place + 1]["key"] == "eval_stop":
                pair = log.records[place], log.records[place + 1]
                pair[0]["time_ms"], pair[1]["time_ms"] = pair[1]["time_ms"], pair[0]["time_ms"]
                log.records[place : place + 2] = pair[::-1]


@honest("names with numbers of racks and clusters")
def _racks(one: SubmissionOnTrial) -> None:
    one.each(lambda log: log.set("submission_platform", "gpu-cluster-01_rack-12"))
    one.description["system_name"] = "phase-2 cluster-03"


@honest("steps counted in the statistics, and samples in sequences")
def _counted_otherwise(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number, (record, _) in enumerate(steps(log)):
            record["metadata"]["step"] = number
        for key in ("train_samples", "trained_samples"):
            for record in log.records:
                if record["key"] == key:
                    record["value"] //= 2048


@honest("ten megabytes of other output between the records", "made")
def _large(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.replace(b"\n", b"\n" + 60_000 * b"x" + b"\n"))
