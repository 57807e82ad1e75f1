"""Logs whose records were edited, mixed, hidden or encoded so that people and tools read different things."""

import gzip
from collections.abc import Callable
from typing import Any

from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import Record
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import Change, TrialTable

cheat = TrialTable()
CYRILLIC_E = "\u0435"


def insert(
    log: Log, before: str, key: str, value: Any = None, number: int = 0, later_ms: int = 0, **fields: Any
) -> None:
    place = log.place(before, number)
    metadata = {"file": "train.py", "lineno": 7, **fields}
    time = log.records[place]["time_ms"] + later_ms
    kind = "INTERVAL_START" if key.endswith("start") else "INTERVAL_END" if key.endswith("stop") else "POINT_IN_TIME"
    record: Record = {
        "namespace": "", "time_ms": time, "event_type": kind, "key": key, "value": value, "metadata": metadata,
    }  # fmt: skip
    log.records.insert(place, record)


def rename(log: Log, key: str, new: str, number: int = 0) -> None:
    log.records[log.place(key, number)]["key"] = new


def added(key: str, *values: Any) -> Change:
    """Records of their own in every run, before its clock starts."""

    def change(one: SubmissionOnTrial) -> None:
        for log in one.logs:
            for value in values:
                insert(log, "init_stop", key, value)

    return change


def in_one_run(key: str, value: Any, number: int = 0) -> Change:
    """Another value in one of the key's records."""
    return lambda one: one.logs[0].set(key, value, number)


def in_all_runs(**values: Any) -> Change:
    """Other values, by key."""
    return lambda one: one.each(lambda log: [log.set(key, value) for key, value in values.items()])


def submitter(renamed: Callable[[str], str]) -> Change:
    """By another name in the logs than the package's."""
    return lambda one: one.each(lambda log: log.set("submission_org", renamed(one.org)))


def in_one_file(change: Callable[[bytes], bytes]) -> Change:
    return lambda one: one.log_bytes(change, (1,))


def _ended_by(content: bytes, end: bytes) -> bytes:
    """With another end of the 40th line."""
    lines = content.split(b"\n")
    return b"\n".join(lines[:40]) + end + b"\n".join(lines[40:])


def block(log: Log, number: int) -> slice:
    """From a block_start to the one after it."""
    return slice(log.place("block_start", number), log.place("block_start", number + 1))


@cheat("a block of records moved behind the next one", "rejected")
def _moved(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    first, second = block(log, 5), block(log, 6)
    records = log.records
    log.records = [*records[: first.start], *records[second], *records[first], *records[second.stop :]]


@cheat("a block of records twice", "rejected")
def _doubled(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    part = block(log, 5)
    log.records[part.stop : part.stop] = [dict(record) for record in log.records[part]]


@cheat("a whole block cut out, the times behind it moved up", "rejected")
def _cut(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    part = block(log, 5)
    taken = log.records[part.stop]["time_ms"] - log.records[part.start]["time_ms"]
    del log.records[part]
    log.shift(part.start, -taken)


@cheat("the second half from another run", "rejected")
def _joined(one: SubmissionOnTrial) -> None:
    first, second = one.logs[0], one.logs[1]
    there, here = second.place("block_start", 12), first.place("block_start", 12)
    first.records[here:] = [dict(record) for record in second.records[there:]]


@cheat("the second half from another run, with its times moved", "rejected")
def _joined_well(one: SubmissionOnTrial) -> None:
    first, second = one.logs[0], one.logs[1]
    there, here = second.place("block_start", 12), first.place("block_start", 12)
    moved = second.records[there]["time_ms"] - first.records[here]["time_ms"]
    rest = [record | {"time_ms": record["time_ms"] - moved} for record in second.records[there:]]
    first.records[here:] = rest


@cheat("all records in the order of their keys", "rejected")
def _sorted(one: SubmissionOnTrial) -> None:
    one.logs[0].records.sort(key=lambda record: str(record["key"]))


@cheat("all records backwards", "rejected")
def _reversed(one: SubmissionOnTrial) -> None:
    one.logs[0].records.reverse()


@cheat("records of a second rank between the first's", "rejected")
def _two_ranks(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    both = [*log.records, *({**record, "time_ms": record["time_ms"] + 2} for record in log.records)]
    log.records = sorted(both, key=lambda record: int(record["time_ms"]))


@cheat("evaluations of a second rank between the first's", "rejected")
def _two_evaluators(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    log.records = [
        again
        for record in log.records
        for again in (
            (record, {**record, "value": record["value"] + 1e-4}) if record["key"] == "eval_accuracy" else (record,)
        )
    ]


@cheat("training goes on after run_stop", "asked")
def _goes_on(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        last = dict(log.records[log.place("run_stop")])
        for key in ("block_start", "block_stop"):
            record = log.copied(log.place(key, -1), time_ms=last["time_ms"] + 40_000)
            log.records.append(record)


@cheat("a failed evaluation hidden under a name with a Cyrillic letter", "asked")
def _lookalike_key(one: SubmissionOnTrial) -> None:
    insert(one.logs[0], "block_start", f"{CYRILLIC_E}val_accuracy", 2.71, 9, epoch_num=1)


@cheat("run_stop with a blank behind its name, and another one later", "asked")
def _blank_key(one: SubmissionOnTrial) -> None:
    insert(one.logs[0], "block_start", "run_stop ", None, 9, status="aborted")


@cheat("RUN_START in capitals before the clock starts", "asked")
def _capitals(one: SubmissionOnTrial) -> None:
    insert(one.logs[0], "init_stop", "RUN_START")


cheat("a seed that is true", "rejected")(in_one_run("seed", True))
cheat("a batch size that is true", "rejected")(in_one_run("global_batch_size", True))


@cheat("tokens of an evaluation as text", "rejected")
def _text_tokens(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    log.metadata("eval_accuracy", 4, epoch_num=str(log.records[log.place("eval_accuracy", 4)]["metadata"]["epoch_num"]))


@cheat("tokens of an evaluation infinite", "rejected")
def _infinite_tokens(one: SubmissionOnTrial) -> None:
    one.logs[0].metadata("eval_accuracy", 4, epoch_num=float("inf"))


cheat("a value that is infinite", "rejected")(in_one_run("eval_accuracy", float("-inf"), 5))
cheat("a value that is true", "rejected")(in_one_run("eval_accuracy", True, 5))
cheat("a value in a list", "rejected")(in_one_run("eval_accuracy", [2.7], 5))


@cheat("first_epoch_num 0 in every block", "asked")
def _all_first(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for record in log.records:
            if record["key"] in ("block_start", "block_stop"):
                record["metadata"]["first_epoch_num"] = 0


@cheat("block_stop of another block than its block_start", "asked")
def _other_stop(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(2, 20):
            log.metadata("block_stop", number, first_epoch_num=7)


@cheat("block_stop missing in half of the blocks", "asked", "steps", "made", "tpu")
def _no_block_stops(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(2, 9):
            del log.records[log.place("block_stop", number)]


@cheat("tokens of eval_start and of its value differ", "asked", "steps", "made")
def _eval_start_tokens(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        log.metadata("eval_start", 7, epoch_num=1)


@cheat("run_stop with status SUCCESS", "rejected")
def _capital_status(one: SubmissionOnTrial) -> None:
    one.logs[0].metadata("run_stop", status="SUCCESS")


@cheat("run_stop with status true", "rejected")
def _true_status(one: SubmissionOnTrial) -> None:
    one.logs[0].metadata("run_stop", status=True)


cheat("number of layers twice, the second one 48", "rejected")(added("num_layers", 96, 48))
cheat("a smaller model under the key of another framework", "rejected")(added("emb_dim", 8192))
cheat("number of parameters 13e9", "rejected")(added("model_parameters", 13_000_000_000))
cheat("a pruned or sparse model, as its own key says", "asked")(added("weight_sparsity", "2:4"))
cheat("dropout under the key of another framework", "rejected")(added("dropout_rate", 0.1))
cheat("dataset other than C4 in a key of its own", "asked")(added("dataset", "the_pile"))
cheat("another optimizer in a key of its own", "asked")(added("optimizer", "shampoo"))
cheat("evaluations every fourth of the documents, in a key of its own", "asked")(added("limit_val_batches", 0.25))


@cheat("configuration logged again behind run_stop, with another batch size", "rejected")
def _again_late(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    log.records.append(log.copied(log.place("global_batch_size"), value=512, time_ms=log.records[-1]["time_ms"]))


cheat("decay steps 0 and warm-up 0", "rejected")(
    in_all_runs(opt_learning_rate_warmup_steps=0, opt_learning_rate_decay_steps=0)
)
cheat("batch size that is no multiple of anything", "asked")(in_all_runs(global_batch_size=2049))


@cheat("the seed only in metadata, the value the same in all runs", "rejected")
def _seed_in_metadata(one: SubmissionOnTrial) -> None:
    for number, log in enumerate(one.logs):
        log.set("seed", 0)
        log.metadata("seed", step=number)


cheat("seed of 400 digits", "rejected")(in_all_runs(seed=10**400))


@cheat("negative seeds one after the other", "asked")
def _negative(one: SubmissionOnTrial) -> None:
    for number, log in enumerate(one.logs):
        log.set("seed", -number - 1)


@cheat("seeds that differ by 2 to the 32", "asked")
def _wrapped(one: SubmissionOnTrial) -> None:
    for number, log in enumerate(one.logs):
        log.set("seed", 77 + (number << 32))


cheat("submitter with a zero-width blank in the logs", "asked")(submitter(lambda org: f"{org}\u200b"))
cheat("submitter with a Cyrillic letter in the logs", "asked")(
    submitter(lambda org: org.replace("o", "\u043e").replace("A", "\u0410"))
)
cheat("platform written from right to left", "asked")(in_all_runs(submission_platform="\u202etxt.46n"))
cheat("submitter with blanks around it", "asked")(submitter(lambda org: f" {org} "))
cheat("log in UTF-16", "rejected")(in_one_file(lambda content: content.decode().encode("utf-16")))
cheat("log compressed under the name of a text", "rejected")(in_one_file(gzip.compress))
cheat("log with zeros between the letters of one record", "rejected")(
    in_one_file(lambda content: content.replace(b'"run_stop"', b'"run\x00_stop"'))
)
cheat("a vertical tab instead of line ends in the middle", "rejected")(
    in_one_file(lambda content: _ended_by(content, b"\x0b"))
)
cheat("a separator that only some readers take for a line end", "rejected")(
    in_one_file(lambda content: _ended_by(content, b"\xc2\x85"))
)


@cheat("value that readers of JSON take for different numbers", "rejected")
def _twice_value(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.replace(b'"value": "adam"', b'"value": "sgd", "value": "adam"'))


@cheat("tokens twice in one record's metadata", "rejected")
def _twice_tokens(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.replace(b'"epoch_num": ', b'"epoch_num": 5, "epoch_num": ', 3))


@cheat("a key twice, once with an escaped letter", "rejected")
def _escaped(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.replace(b'"value": "adam"', b'"v\\u0061lue": "sgd", "value": "adam"'))


@cheat("key of a record with an escaped letter", "kept")
def _escaped_key(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.replace(b'"seed"', b'"s\\u0065ed"'))


@cheat("a namespace that says whose record it is: other for the evaluations", "asked")
def _namespace(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for record in log.records:
            if record["key"] == "eval_accuracy":
                record["namespace"] = "ema_weights"


@cheat("all evaluations logged from one line behind the run", "rejected")
def _at_the_end(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        stop = log.records[log.place("run_stop")]["time_ms"]
        found = [record for record in log.records if record["key"] == "eval_accuracy"]
        log.without("eval_accuracy")
        place = log.place("run_stop")
        log.records[place:place] = [record | {"time_ms": stop} for record in found]


@cheat("event types all POINT_IN_TIME", "asked")
def _points(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for record in log.records:
            record["event_type"] = "POINT_IN_TIME"
