"""Records that a log must hold, once, and the values they must have (docs/facts/mlperf_review.md 2, 3, 7.2, 7.7)."""

from collections.abc import Iterator
from typing import Any

from benchmark.results.judged import GPT3, Judged
from benchmark.results.printable import shortened
from benchmark.results.result_log import LogEvent, as_number, misleading_words
from benchmark.review.findings import Deviation, Run, Severity, at

CONFIGURATION = (
    "submission_org", "submission_platform", "submission_division", "submission_benchmark",
    "global_batch_size", "gradient_accumulation_steps", "max_sequence_length", "eval_samples", "init_checkpoint_step",
    "opt_name", "opt_base_learning_rate", "opt_end_learning_rate", "opt_learning_rate_warmup_steps",
    "opt_learning_rate_decay_steps", "opt_learning_rate_decay_schedule",
    "opt_adam_beta_1", "opt_adam_beta_2", "opt_adam_epsilon", "opt_gradient_clip_norm",
)  # fmt: skip
EXACTLY_ONE = (*CONFIGURATION, "init_stop", "run_start", "run_stop", "train_samples")
AT_LEAST_ONE = ("cache_clear", "init_start", "eval_accuracy")
ALTERNATIVES = (("block_start", "epoch_start"), ("block_stop", "epoch_stop"))
POSITIVE = ("global_batch_size", "gradient_accumulation_steps", "init_checkpoint_step", "eval_samples", "train_samples")
WHOLE = ("global_batch_size", "gradient_accumulation_steps", "init_checkpoint_step", "max_sequence_length")
NOT_NEGATIVE = ("opt_end_learning_rate", "opt_learning_rate_warmup_steps", "opt_learning_rate_decay_steps")
MOST_SHOWN = 60
"""Characters of a value."""
MANY = 5
"""So many keys of a run repeated are no slip, but a second run or copy."""


def fixed_values(judged: Judged) -> tuple[tuple[str, Any], ...]:
    """Values of the closed division that the official checker compares exactly."""
    optimizer = judged.benchmark.optimizer
    return (
        ("max_sequence_length", judged.benchmark.model.seq_length),
        ("opt_name", "adam"),
        ("opt_adam_beta_1", optimizer.adam_beta1),
        ("opt_adam_beta_2", optimizer.adam_beta2),
        ("opt_adam_epsilon", optimizer.adam_eps),
        ("opt_gradient_clip_norm", optimizer.clip_grad),
        ("opt_learning_rate_decay_schedule", "cosine with linear warmup"),
    )


def readable(run: Run) -> Iterator[Deviation]:
    """What the official tools cannot read, or lose; a question where a person reads another thing than they do."""
    for problem in run.log.problems:
        if not problem.harmless:
            severity: Severity | None = None if problem.fatal else "warning"
            yield Deviation(run.log.path, problem.line, problem.found, problem.expected, problem.mend, severity)


def two_runs(run: Run) -> Iterator[Deviation]:
    """A second run appended to a file: everything else that is found there follows from it."""
    second = _second_records(run)
    if len(second) >= MANY and len(run.log.all("run_start")) > 1 and not _is_copy(run, second):
        yield at(run, second[0], f"another run begins here, with {second[0].key} again", "the records of one run")


def _second_records(run: Run) -> list[LogEvent]:
    """The second record of each key of which a run has one, by line."""
    second = [run.log.all(key)[1] for key in EXACTLY_ONE if len(run.log.all(key)) > 1]
    return sorted(second, key=lambda event: event.line)


def _is_copy(run: Run, second: list[LogEvent]) -> bool:
    """The same records with the same times: captured from the output as well."""
    return all(
        (event.time_ms, event.value) == (run.log.all(event.key)[0].time_ms, run.log.all(event.key)[0].value)
        for event in second
    )


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
            yield Deviation(log.path, line, f"no {key}", f"one {key}")
    for names in ALTERNATIVES:
        unfinished = run.was_aborted and names[1] == "epoch_stop"
        if not unfinished and not any(log.all(name) for name in names):
            words = " or ".join(names)
            yield Deviation(log.path, last, f"no {words}", f"at least one {words}")


def not_repeated(run: Run) -> Iterator[Deviation]:
    """The official checker fails two different values, and lets the same value pass twice."""
    second = _second_records(run)
    if len(second) >= MANY and _is_copy(run, second):
        found = f"{second[0].key} again, and {len(second) - 1} other records, each with the same time"
        yield at(run, second[0], found, "every record once", severity="warning")
        return
    for event in second:
        values = list(dict.fromkeys(repr(one.value) for one in run.log.all(event.key)))
        found = (
            f"{len(run.log.all(event.key))} times {event.key}, values {shortened(', '.join(values[:4]), MOST_SHOWN)}"
        )
        yield at(run, event, found, "once", severity=None if len(values) > 1 else "warning")


def fixed(run: Run) -> Iterator[Deviation]:
    for key, due in fixed_values(run.judged or GPT3):
        for event in run.log.all(key):
            if event.value != due or isinstance(event.value, bool):
                yield at(run, event, f"{key} {_shown(event.value)}", repr(due))


def model(run: Run) -> Iterator[Deviation]:
    """Sizes, dropout and weight decay, where a log has them; the rules fix them, and no official tool looks."""
    if run.division == "open":
        return
    for key, due in (run.judged or GPT3).logged:
        for event in run.log.all(key):
            if event.number != due:
                yield at(run, event, f"{key} {_shown(event.value)}", f"{due:g}")


def numbers(run: Run) -> Iterator[Deviation]:
    for key in (*POSITIVE, *NOT_NEGATIVE):
        for event in run.log.all(key):
            value, whole = event.number, key in WHOLE
            least = 0 if key in NOT_NEGATIVE else 5e-324
            if value is None or value < least or (whole and value != int(value)):
                due = f"a {'whole ' * whole}number {'of at least' if key in NOT_NEGATIVE else 'above'} 0"
                yield at(run, event, f"{key} {_shown(event.value)}", due)


def names(run: Run) -> Iterator[Deviation]:
    """What the official checker takes; it crashes on other names."""
    for key in ("submission_org", "submission_platform"):
        for event in run.log.all(key):
            if not isinstance(event.value, str) or not event.value.strip():
                yield at(run, event, f"{key} {_shown(event.value)}", "a name")
    for event in run.log.all("submission_division"):
        if event.value not in ("closed", "open"):
            yield at(run, event, f"submission_division {_shown(event.value)}", "'closed' or 'open'")
    for event in run.log.all("submission_benchmark"):
        if run.judged is None:
            yield at(run, event, f"submission_benchmark {_shown(event.value)}", "'gpt3'")


def seeds(run: Run) -> Iterator[Deviation]:
    log = run.log
    if run.division == "open":
        return
    if log.events and not log.all("seed"):
        yield at(run, log.first("init_stop") or log.events[0], "no seed", "at least one whole number")
    for event in log.all("seed"):
        missing = [name for name in ("file", "lineno") if name not in event.metadata]
        if type(event.value) is not int:
            yield at(run, event, f"seed {_shown(event.value)}", "a whole number")
        if missing:
            yield at(run, event, f"seed without {' and '.join(missing)}", "metadata with file and lineno")


def misleading(run: Run) -> Iterator[Deviation]:
    for event in run.log.events:
        for word in misleading_words(event):
            yield at(run, event, f"the word {word} in a record of {event.key}", f"{word} in its own records only")


def block_metadata(run: Run) -> Iterator[Deviation]:
    """What the official checker wants of blocks, epochs and evaluations (docs/facts/mlperf_review.md 3.4)."""
    for key in ("block_start", "block_stop", "epoch_start", "epoch_stop", "eval_start", "eval_stop"):
        for event in run.log.all(key):
            due = _lacking(event)
            if due:
                yield at(run, event, f"{key} with {_shown(dict(event.metadata))}", f"metadata {due}, in tokens")


def _lacking(event: LogEvent) -> str:
    fields = event.metadata
    if event.key == "block_start":
        count = as_number(fields.get("epoch_count", fields.get("samples_count")))
        whole = "epoch_count" not in fields or ((count or 0) > 0 and "first_epoch_num" in fields)
        return "" if count is not None and whole else "epoch_count above 0 and first_epoch_num"
    if event.key == "block_stop":
        return "" if {"first_epoch_num", "samples_count"} & set(fields) else "first_epoch_num"
    return "" if {"epoch_num", "samples_count", "step_num"} & set(fields) else "epoch_num"


def _shown(value: Any) -> str:
    return shortened(repr(value), MOST_SHOWN)
