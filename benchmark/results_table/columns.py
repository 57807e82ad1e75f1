"""The columns of the results table: name, kind, unit, meaning, and where a run's and a system's value come from.

Names are stable: columns are added, never renamed. Those of the official result summarizer's table mean what they mean
there (docs/facts/mlperf_review.md 4.11); the others are ours. docs/results.md lists them all.
"""

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from benchmark.results.subjects import BENCHMARK
from benchmark.results_table.row_facts import RunFacts, SystemFacts, scalars

Kind = Literal["text", "count", "number", "flag", "time"]
"""time: UTC, in ISO 8601."""
MOST_LISTED = 40
"""Findings that a cell lists."""
MOST_OTHER = 8_000
"""Characters of the cell with all other keys of a log."""


@dataclass(frozen=True)
class Column:
    """A column. ``system`` and ``run`` give its value in a row of a system and of a run; None: empty there."""

    name: str
    kind: Kind
    meaning: str
    """With the unit."""
    system: Callable[[SystemFacts], Any] | None = None
    run: Callable[[RunFacts], Any] | None = None


def _of_both(name: str, kind: Kind, meaning: str, value: Callable[[SystemFacts], Any]) -> Column:
    """A fact of the system, which stands in the rows of its runs, too."""
    return Column(name, kind, meaning, value, lambda run: value(run.system))


def _described(field: str) -> Column:
    """A field of the system description, as it stands there."""

    def value(facts: SystemFacts) -> Any:
        found = facts.described.get(field)
        return found if found is None or isinstance(found, str) else json.dumps(found, ensure_ascii=False)

    return _of_both(field, "text", "of the system description", value)


def _logged(name: str, kind: Kind, meaning: str, key: str | None = None) -> Column:
    """A key of the logs; in the row of a system, that of its middle run."""
    key = key or name

    def of_run(run: RunFacts) -> Any:
        return run.summary.log.value(key)

    def of_system(facts: SystemFacts) -> Any:
        return None if facts.middle is None else facts.middle.log.value(key)

    return Column(name, kind, meaning, of_system, of_run)


def _measured(name: str, kind: Kind, meaning: str, value: Callable[[RunFacts], Any]) -> Column:
    """A figure of a run; in the row of a system, that of its middle run."""

    def of_system(facts: SystemFacts) -> Any:
        return next((value(run) for run in facts.runs if run.summary is facts.middle), None)

    return Column(name, kind, meaning, of_system, value)


def _scored(name: str, kind: Kind, meaning: str, path: str) -> Column:
    """An attribute of the system's facts, in its own row alone."""
    return Column(name, kind, meaning, attrgetter(path))


def _official(name: str, kind: Kind, meaning: str) -> Column:
    """A value of the official summarizer."""
    return Column(f"{BENCHMARK}:{name}", kind, f"{meaning}; official", lambda facts: facts.official.get(name))


def _utc(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None


def _series(values: Sequence[float | None]) -> str | None:
    """Numbers apart by spaces, with a dash for one that is not there."""
    return " ".join("-" if value is None else f"{value:.10g}" for value in values) or None


def _rules(findings: Sequence[Any]) -> str | None:
    """Names of the rules that found something, each once, with how often."""
    counts: dict[str, int] = {}
    for one in findings:
        counts[one.rule] = counts.get(one.rule, 0) + 1
    named = [rule if count == 1 else f"{rule} x{count}" for rule, count in counts.items()]
    return "; ".join(named[:MOST_LISTED]) + ("; …" if len(named) > MOST_LISTED else "") or None


def _found(name: str, severity: Any, meaning: str) -> list[Column]:
    return [
        Column(name, "count", f"how many {meaning}", *[lambda facts: len(facts.findings(severity))] * 2),
        Column(
            f"{name}_rules", "text", f"rules of these {name}", *[lambda facts: _rules(facts.findings(severity))] * 2
        ),
    ]


def _others(run: RunFacts) -> str | None:
    """What the log says besides."""
    text = json.dumps(scalars(run, LOG_KEYS), ensure_ascii=False)
    return None if text == "{}" else text[:MOST_OTHER]


IDENTITY = (
    Column("row", "text", "system or run", lambda _: "system", lambda _: "run"),
    _of_both("round", "text", "whose rules it is judged by: 3.0, 3.1, 4.0 or 4.1", attrgetter("round")),
    _of_both("package", "text", "folder of the submission package", attrgetter("package")),
    _of_both("system_folder", "text", "folder of the system's results, or what tells loose runs",
             attrgetter("result_set.name")),
    Column("file", "text", "name of the result file", None, lambda run: run.summary.log.path.name),
    Column("path", "text", "of the folder or file, as given",
           lambda facts: str(facts.result_set.folder or facts.subject.path), lambda run: str(run.summary.log.path)),
    Column("runs", "count", "result files of the system", lambda facts: len(facts.result_set.files)),
)  # fmt: skip

DESCRIPTION = (
    _described("division"),
    _of_both("availability", "text", "status of the system description", lambda facts: facts.described.get("status")),
    _described("submitter"),
    _of_both("system", "text", "system_name of the description", lambda facts: facts.described.get("system_name")),
    _of_both("number_of_nodes", "count", "of the system description", lambda facts: facts.description_counts[0]),
    _described("host_processor_model_name"),
    _of_both("host_processors_count", "count", "processors of all nodes", attrgetter("host_processors")),
    _described("accelerator_model_name"),
    _of_both("accelerators_count", "count", "accelerators of all nodes, by the description or config.json",
             attrgetter("score.accelerators")),
    _described("framework"),
    _of_both("notes", "text", "hw_notes;sw_notes of the description",
             lambda facts: ";".join(str(facts.described[name]) for name in ("hw_notes", "sw_notes")
                                    if facts.described.get(name)) or None),
    _of_both("accelerators_per_node", "count", "of the system description", lambda facts: facts.description_counts[1]),
    *map(_described, (
        "host_processor_core_count", "host_memory_capacity", "host_storage_type", "host_storage_capacity",
        "host_networking", "host_networking_topology", "accelerator_memory_capacity",
        "accelerator_memory_configuration", "accelerator_interconnect", "accelerator_host_interconnect", "cooling",
        "operating_system", "other_software_stack",
    )),
)  # fmt: skip

LOGGED = (
    _logged("submission_benchmark", "text", "of the log: gpt3 or gpt3_rehearsal"),
    _logged("submission_org", "text", "of the log"),
    _logged("submission_platform", "text", "of the log"),
    _logged("submission_division", "text", "of the log"),
    _logged("submission_status", "text", "of the log: onprem, cloud, preview or research"),
    Column("seed", "count", "of the log", None, attrgetter("scored.seed")),
    _logged("global_batch_size", "number", "samples of a step"),
    _logged("gradient_accumulation_steps", "number", "of the log"),
    _logged("max_sequence_length", "number", "tokens of a sample"),
    _logged("opt_name", "text", "optimizer"),
    _logged("opt_base_learning_rate", "number", "peak learning rate"),
    _logged("opt_end_learning_rate", "number", "final learning rate"),
    _logged("opt_learning_rate_warmup_steps", "number", "steps"),
    _logged("opt_learning_rate_decay_steps", "number", "steps"),
    _logged("opt_learning_rate_decay_schedule", "text", "name of the schedule"),
    _logged("opt_weight_decay", "number", "of the log"),
    _logged("opt_gradient_clip_norm", "number", "of the log"),
    _logged("opt_adam_beta_1", "number", "of the log"),
    _logged("opt_adam_beta_2", "number", "of the log"),
    _logged("opt_adam_epsilon", "number", "of the log"),
    _logged("init_checkpoint_step", "number", "step of the initial checkpoint"),
    _logged("eval_samples", "number", "of the log: tokens, or documents"),
    _logged("train_samples", "number", "of the log: tokens"),
)  # fmt: skip

MEASURED = (
    _measured("run_started", "time", "run_start, UTC", lambda run: _utc(run.summary.run_start_ms)),
    _measured("status", "text", "of run_stop: success or aborted", attrgetter("summary.status")),
    _measured("minutes", "number", "run_start to run_stop, minutes", attrgetter("summary.minutes")),
    _measured("init_s", "number", "first init_start to init_stop, seconds; not timed", attrgetter("summary.init_s")),
    _measured("init_share", "number", "of initialisation and run together", attrgetter("scored.init_share")),
    _measured("tokens", "number", "trained since the initial checkpoint", attrgetter("summary.trained_tokens")),
    _measured("samples", "number", "trained since the initial checkpoint", attrgetter("summary.trained_samples")),
    _measured("tokens_to_target", "number", "at the first evaluation inside the target's window",
              lambda run: None if run.summary.reached is None else run.summary.reached.tokens),
    _measured("evaluations", "count", "how many", attrgetter("scored.evaluations")),
    _measured("evaluation_tokens", "text", "tokens at each evaluation, apart by spaces",
              lambda run: _series([one.tokens for one in run.summary.evaluations])),
    _measured("evaluation_values", "text", "log perplexity at each evaluation, apart by spaces",
              lambda run: _series([one.log_perplexity for one in run.summary.evaluations])),
    _measured("last_log_perplexity", "number", "nats per token", attrgetter("scored.last_log_perplexity")),
    _measured("evaluation_s", "number", "median seconds of an evaluation, where logged",
              attrgetter("validation_step_s")),
    _measured("evaluation_share", "number", "of the run's time, where logged", attrgetter("scored.evaluation_share")),
    _measured("step_s", "number", "median of the logged seconds of a training step", attrgetter("scored.step_s")),
    _measured("tokens_per_s", "number", "of the whole system over the whole run", attrgetter("summary.tokens_per_s")),
    _measured("tokens_per_s_per_accelerator", "number", "over the whole run",
              attrgetter("tokens_per_s_per_accelerator")),
    _measured("tflops_per_accelerator", "number", "model TFLOP/s over the whole run",
              attrgetter("tflops_per_accelerator")),
    _measured("mfu", "number", "of the dense BF16 peak, whatever the precision", attrgetter("mfu")),
    _of_both("peak_tflops", "number", "dense BF16 peak of the accelerator", attrgetter("score.peak_tflops")),
    _measured("restarts", "count", "from checkpoints of the run", attrgetter("scored.restarts")),
    _measured("log_bytes", "count", "size of the file", attrgetter("summary.log.size_bytes")),
    _measured("log_events", "count", "records of the file", lambda run: len(run.summary.log.events)),
)  # fmt: skip

OFFICIAL = (
    _official("time_to_train", "number", "score, minutes"),
    _official("Energy", "number", "where it was measured"),
    _official("GBS", "number", "global batch size"),
    _official("samples_to_converge", "number", "tokens, the middle one of three"),
    _official("RCP", "text", "the convergence test"),
    _official("rcp_scaling_factor", "number", "of scaling.json"),
)
"""The official summarizer's own values; empty outside of packages, and where it was not run."""

SCORES = (
    _scored("measured_minutes", "number", "the middle of three times; ours", "score.measured_minutes"),
    _scored("rcp_factor", "number", "of the reference points; ours", "score.reference_factor"),
    _scored("scaling_factor", "number", "of scaling.json; outside of packages rcp_factor", "score.factor"),
    _scored("score_minutes", "number", "measured_minutes times scaling_factor; ours", "score.minutes"),
    _scored("no_score_why", "text", "why there is no score", "score.why_no_score"),
    _scored("convergence", "text", "how it stands against the reference points", "result_set.convergence.standing"),
    _scored("convergence_why", "text", "what it was compared with", "result_set.convergence.why"),
    _scored("rcp_median_tokens", "number", "tokens of the middle run", "result_set.convergence.median"),
    Column("rcp_mean_tokens", "number", "mean of the reference runs",
           lambda facts: getattr(facts.result_set.convergence.point, "mean", None)),
    Column("rcp_least_tokens", "number", "smallest accepted median",
           lambda facts: getattr(facts.result_set.convergence.point, "least", None)),
)  # fmt: skip

REVIEWED = (
    _of_both("passed", "flag", "the review of its package, or of the loose runs", attrgetter("subject.passed")),
    Column("official_checks", "count", "official checks of the package or the runs",
           lambda facts: len(facts.subject.checks)),
    Column("official_failed", "text", "official checks that did not pass",
           lambda facts: "; ".join(dict.fromkeys(f"{one.tool}: {one.outcome}" for one in facts.subject.checks
                                                 if not one.passed)) or None),
    *_found("errors", "error", "reasons to reject"),
    *_found("warnings", "warning", "questions a reviewer will ask"),
    *_found("notes_found", "note", "things good to know"),
    Column("problem", "text", "why a package or file could not be reviewed at all"),
    Column("other_keys", "text", "first values of all other keys of the log, as JSON", None, _others),
)  # fmt: skip

COLUMNS: tuple[Column, ...] = (*IDENTITY, *DESCRIPTION, *OFFICIAL, *SCORES, *MEASURED, *LOGGED, *REVIEWED)
LOG_KEYS = tuple(column.name for column in LOGGED)
NAMES = tuple(column.name for column in COLUMNS)
