"""Records that a log must hold, and the values they must have (docs/facts/mlperf_review.md 2, 3)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmark.results.judged import GPT3, Judged
from benchmark.results.printable import shortened
from benchmark.results.result_log import as_number, misleading_words
from benchmark.review.findings import Deviation, Run, at

CONFIGURATION = (
    "submission_org", "submission_platform", "submission_division", "submission_benchmark",
    "global_batch_size", "gradient_accumulation_steps", "max_sequence_length", "eval_samples", "init_checkpoint_step",
    "opt_name", "opt_base_learning_rate", "opt_end_learning_rate", "opt_learning_rate_warmup_steps",
    "opt_learning_rate_decay_steps", "opt_learning_rate_decay_schedule",
    "opt_adam_beta_1", "opt_adam_beta_2", "opt_adam_epsilon", "opt_gradient_clip_norm",
)  # fmt: skip
EXACTLY_ONE = (*CONFIGURATION, "init_stop", "run_start", "run_stop", "train_samples")
"""The official checker only warns of a second one with the same value; no published log has one."""
AT_LEAST_ONE = ("cache_clear", "init_start", "eval_accuracy")
ALTERNATIVES = (("block_start", "epoch_start"), ("block_stop", "epoch_stop"))
STATUSES = ("cloud", "onprem", "preview", "research")
POSITIVE = ("global_batch_size", "gradient_accumulation_steps", "init_checkpoint_step", "eval_samples", "train_samples")
WHOLE = ("global_batch_size", "gradient_accumulation_steps", "init_checkpoint_step", "max_sequence_length")
STARTS = ("init_start", "run_start", "block_start", "epoch_start", "eval_start")
STOPS = ("init_stop", "run_stop", "block_stop", "epoch_stop", "eval_stop")
MOST_SHOWN = 60
"""Characters of a value."""
DROPOUTS = (
    "hidden_dropout", "attention_dropout", "dropout", "dropout_rate", "dropout_prob", "hidden_dropout_prob",
    "attention_probs_dropout_prob", "ffn_dropout", "embedding_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop",
)  # fmt: skip


@dataclass(frozen=True)
class Fixed:
    """A value that is the same in every closed submission."""

    key: str
    value: Any
    mend: str


def fixed_values(judged: Judged) -> tuple[Fixed, ...]:
    """Values of the closed division that the official checker compares exactly."""
    optimizer, length = judged.benchmark.optimizer, judged.benchmark.model.seq_length
    from_config = "log the configured number as a Python float, not what a float32 tensor makes of it"
    return (
        Fixed("max_sequence_length", length, f"train with sequences of {length} tokens, and log that number"),
        Fixed("opt_name", "adam", "train with Adam, and log it as 'adam'"),
        Fixed("opt_adam_beta_1", optimizer.adam_beta1, from_config),
        Fixed("opt_adam_beta_2", optimizer.adam_beta2, from_config),
        Fixed("opt_adam_epsilon", optimizer.adam_eps, from_config),
        Fixed("opt_gradient_clip_norm", optimizer.clip_grad, from_config),
        Fixed("opt_learning_rate_decay_schedule", "cosine with linear warmup", "log exactly this text"),
    )


def readable(run: Run) -> Iterator[Deviation]:
    for problem in run.log.problems:
        if problem.fatal:
            yield Deviation(run.log.path, problem.line, problem.found, problem.expected, problem.mend)


def file_name(run: Run) -> Iterator[Deviation]:
    path = run.log.path
    if not path.match("result_*.txt"):
        mend = "rename it for a submission: the official tools look for no other names"
        yield Deviation(path, None, f"file {path.name}", "result_0.txt, result_1.txt, result_2.txt", mend)


def well_formed(run: Run) -> Iterator[Deviation]:
    for problem in run.log.problems:
        if not problem.fatal and not problem.harmless:
            yield Deviation(run.log.path, problem.line, problem.found, problem.expected, problem.mend)
    for event in run.log.events:
        due = "INTERVAL_START" if event.key in STARTS else "INTERVAL_END" if event.key in STOPS else None
        if due is not None and event.event_type != due:
            method = "start" if due == "INTERVAL_START" else "end"
            mend = f"log it with mllog's {method}()"
            yield at(run, event, f"{event.key} as {event.event_type}", due, mend)


def as_accepted(run: Run) -> Iterator[Deviation]:
    """What the official tools take as it is, though mllog writes it otherwise."""
    for problem in run.log.problems:
        if problem.harmless:
            yield Deviation(run.log.path, problem.line, problem.found, problem.expected, problem.mend)


def present(run: Run) -> Iterator[Deviation]:
    log = run.log
    if not log.events:
        return  # said by readable
    last = log.events[-1].line
    init_stop = log.first("init_stop")
    for key in (*EXACTLY_ONE, *AT_LEAST_ONE):
        if not log.all(key) and not (run.was_aborted and key == "eval_accuracy"):
            early = key in CONFIGURATION or key in ("cache_clear", "init_start", "init_stop")
            line = init_stop.line if early and init_stop is not None else last
            before = " before init_stop" if key in CONFIGURATION else ""
            yield Deviation(log.path, line, f"no {key}", f"one {key}{before}", f"log {key} in every run, from rank 0")
    for names in ALTERNATIVES:
        unfinished = run.was_aborted and names[1] == "epoch_stop"
        if not unfinished and not any(log.all(name) for name in names):
            words = " or ".join(names)
            yield Deviation(
                log.path, last, f"no {words}", f"at least one {words}", "log the blocks between evaluations"
            )


def not_repeated(run: Run) -> Iterator[Deviation]:
    for key in EXACTLY_ONE:
        events = run.log.all(key)
        if len(events) > 1:
            values = list(dict.fromkeys(repr(event.value) for event in events))
            found = f"{len(events)} times {key}, values {', '.join(values[:4])}"
            mend = "log it from one process only, and keep stdout out of the file; a new run starts a new file"
            yield at(run, events[1], found, "once", mend)


def fixed(run: Run) -> Iterator[Deviation]:
    for rule in fixed_values(run.judged or GPT3):
        for event in run.log.all(rule.key):
            if event.value != rule.value or isinstance(event.value, bool):
                yield at(run, event, f"{rule.key} {event.value!r}", repr(rule.value), rule.mend)


def numbers(run: Run) -> Iterator[Deviation]:
    for key in POSITIVE:
        for event in run.log.all(key):
            value = event.number
            if value is None or value <= 0 or (key in WHOLE and value != int(value)):
                due = "a whole number above 0" if key in WHOLE else "a number above 0"
                yield at(run, event, f"{key} {_shown(event.value)}", due, f"log {key} as a plain number")
    for key in ("opt_end_learning_rate", "opt_learning_rate_warmup_steps", "opt_learning_rate_decay_steps"):
        for event in run.log.all(key):
            if event.number is None or event.number < 0:
                found = f"{key} {_shown(event.value)}"
                yield at(run, event, found, "a number of at least 0", f"log {key} as a plain number")


def names(run: Run) -> Iterator[Deviation]:
    log = run.log
    for key in ("submission_org", "submission_platform"):
        for event in log.all(key):
            if not isinstance(event.value, str) or not event.value.strip():
                yield at(run, event, f"{key} {_shown(event.value)}", "a name", "log the name, not an empty string")
    for event in log.all("submission_division"):
        if event.value not in ("closed", "open"):
            mend = "write it in lower case: anything else crashes the official checker"
            yield at(run, event, f"submission_division {_shown(event.value)}", "'closed' or 'open'", mend)
    for event in log.all("submission_benchmark"):
        if run.judged is None:
            mend = "log 'gpt3'; other names crash the official checker, or are judged by other rules"
            yield at(run, event, f"submission_benchmark {_shown(event.value)}", "'gpt3'", mend)


def status(run: Run) -> Iterator[Deviation]:
    for event in run.log.all("submission_status"):
        if event.value not in STATUSES:
            found, due = f"submission_status {_shown(event.value)}", ", ".join(STATUSES)
            yield at(run, event, found, due, "log one of these; rulesets before 4.1.0 check it")


def weight_decay(run: Run) -> Iterator[Deviation]:
    if run.division == "open":
        return
    due = (run.judged or GPT3).benchmark.optimizer.weight_decay
    for event in run.log.all("opt_weight_decay"):
        if event.value != due:
            yield at(run, event, f"opt_weight_decay {_shown(event.value)}", repr(due), "train with it, and log it")
    for key in DROPOUTS:
        for event in run.log.all(key):
            if event.number != 0:
                yield at(run, event, f"{key} {_shown(event.value)}", "0.0", "train without dropout")


def weight_decay_logged(run: Run) -> Iterator[Deviation]:
    if run.log.events and not run.log.all("opt_weight_decay"):
        line = run.log.events[0].line
        due = f"opt_weight_decay {(run.judged or GPT3).benchmark.optimizer.weight_decay}"
        yield Deviation(run.log.path, line, "no opt_weight_decay", due, "log it: every published log has it")


def seeds(run: Run) -> Iterator[Deviation]:
    log = run.log
    if run.division == "open":
        return
    if log.events and not log.all("seed"):
        stop = log.first("init_stop") or log.events[0]
        mend = "log the run's seed with mllog, drawn from the clock or the system's randomness"
        yield at(run, stop, "no seed", "at least one whole number", mend)
    for event in log.all("seed"):
        if type(event.value) is not int:
            yield at(run, event, f"seed {_shown(event.value)}", "a whole number", "log the seed as a plain integer")
        missing = [name for name in ("file", "lineno") if name not in event.metadata]
        if missing:
            mend = "log it with mllog: the seed checker compares where seeds come from"
            yield at(run, event, f"seed without {' and '.join(missing)}", "metadata with file and lineno", mend)


def one_seed(run: Run) -> Iterator[Deviation]:
    events = run.log.all("seed")
    if len(events) > 1:
        yield at(run, events[1], f"{len(events)} seeds", "one per run", "log one seed, or be ready to explain each")


def late(run: Run) -> Iterator[Deviation]:
    start = run.log.first("run_start")
    for key in (*CONFIGURATION, "seed"):
        for event in run.log.all(key) if start is not None else ():
            if start is not None and event.line > start.line:
                mend = "log the configuration before the clock starts"
                yield at(run, event, f"{key} after run_start", "before init_stop", mend)


def misleading(run: Run) -> Iterator[Deviation]:
    for event in run.log.events:
        for word in misleading_words(event):
            found = f"the word {word} in a record of {event.key}"
            mend = "rename the key, the field or the source file: the official RCP checker reads it as that record"
            yield at(run, event, found, f"{word} in its own records only", mend)


def block_metadata(run: Run) -> Iterator[Deviation]:
    """What the official checker wants of blocks and epochs (docs/facts/mlperf_review.md 3.4)."""
    for event in run.log.all("block_start"):
        fields = event.metadata
        count = as_number(fields.get("epoch_count", fields.get("samples_count")))
        if count is None or ("epoch_count" in fields and (count <= 0 or "first_epoch_num" not in fields)):
            due = "metadata epoch_count above 0 and first_epoch_num, in tokens"
            yield at(run, event, f"block_start with {_shown(dict(fields))}", due, "log both with block_start")
    for event in run.log.all("block_stop"):
        if "first_epoch_num" not in event.metadata and "samples_count" not in event.metadata:
            found, due = f"block_stop with {_shown(dict(event.metadata))}", "metadata first_epoch_num, in tokens"
            yield at(run, event, found, due, "log the block_start's first_epoch_num")
    for key in ("epoch_start", "epoch_stop", "eval_start", "eval_stop"):
        for event in run.log.all(key):
            if not {"epoch_num", "samples_count", "step_num"} & set(event.metadata):
                yield at(run, event, f"{key} without epoch_num", "metadata epoch_num, in tokens", "log the tokens")


def _shown(value: Any) -> str:
    return shortened(repr(value), MOST_SHOWN)
