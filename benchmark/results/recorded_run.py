"""Read the files of a run: its log, and the configuration and events in its run folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmark.results.mllog import as_number, read_log
from benchmark.results.run_summary import RunSummary
from stage.errors import InputError
from stage.regular_files import children, is_regular, read_regular

MOST_CONFIG_BYTES = 1 << 20
MOST_EVENT_BYTES = 512 << 20
"""Largest file in bytes. A step takes 400 bytes, so it holds about a million steps."""
OWN = ("time_ms", "key", "kind", "value")


@dataclass(frozen=True)
class RecordedEvent:
    """One line of ``events.jsonl``."""

    time_ms: int
    """Milliseconds since the epoch."""
    key: str
    value: Any
    fields: Mapping[str, Any]

    def number(self, name: str) -> float | None:
        """Return a field, if it is a number."""
        value = self.fields.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_events(path: Path) -> Sequence[RecordedEvent]:
    """Return the events in their order; none if there is no file. Incomplete lines, as a killed run leaves one, are
    left out. Raises InputError if the file is too large to read."""
    if not is_regular(path):
        return ()
    if path.stat().st_size > MOST_EVENT_BYTES:
        raise InputError(f"{path}: {path.stat().st_size:,} bytes, expected at most {MOST_EVENT_BYTES:,}; move it away")
    events: list[RecordedEvent] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("key"), str) and type(record.get("time_ms")) is int:
                fields = {name: value for name, value in record.items() if name not in OWN}
                events.append(RecordedEvent(record["time_ms"], record["key"], record.get("value"), fields))
    return events


def last_note(events: Sequence[RecordedEvent], key: str) -> Mapping[str, Any]:
    """Return the value of the last event of ``key`` whose value is an object; empty without one."""
    for event in reversed(events):
        if event.key == key and isinstance(event.value, dict):
            return event.value
    return {}


@dataclass(frozen=True)
class RecordedRun:
    """One run. ``config`` and ``events`` are empty for a log outside its run folder."""

    path: Path
    """Path of the MLPerf log."""
    summary: RunSummary
    config: Mapping[str, Any]
    """Resolved configuration from ``config.json``."""
    events: Sequence[RecordedEvent]

    @property
    def target(self) -> float | None:
        """Return the configured target of the run, or None if it has none; for a log alone, its benchmark's target."""
        configured = self.config.get("benchmark", {})
        if "target_log_perplexity" in configured:
            return as_number(configured["target_log_perplexity"])
        return self.summary.target

    @cached_property
    def inputs(self) -> Mapping[str, Any]:
        """Return data and checkpoint with their digests, as the run recorded them."""
        return last_note(self.events, "inputs")

    @property
    def digests(self) -> Mapping[str, Any]:
        """Return the MD5 of each input file by name; data or a checkpoint without a manifest has None."""
        found: dict[str, Any] = {}
        for path, entry in self.inputs.items():
            digests = entry.get("md5") if isinstance(entry, dict) else None
            found.update(digests if isinstance(digests, dict) else {path.rpartition("/")[2]: None})
        return found

    @cached_property
    def environment(self) -> Mapping[str, Any]:
        """Return commit, versions and devices, as the run recorded them."""
        return last_note(self.events, "environment")


def read_recorded_run(path: Path) -> RecordedRun:
    """Read a result file, or the run folder that holds one.

    Raises InputError for any other path, and for a configuration that cannot be read.
    """
    return with_records(RunSummary(read_log(_log_in(path))))


def with_records(summary: RunSummary) -> RecordedRun:
    """Return a run whose log is read, with the files beside its log. Raises InputError for a configuration that cannot
    be read."""
    path = summary.log.path
    config = config_beside(path)
    return RecordedRun(path, summary, config, read_events(path.with_name("events.jsonl")) if config else ())


SETTINGS = {
    "global batch size": "global_batch_size",
    "gradient accumulation steps": "gradient_accumulation_steps",
    "sequence length": "max_sequence_length",
    "learning rate": "opt_base_learning_rate",
    "final learning rate": "opt_end_learning_rate",
    "warm-up steps": "opt_learning_rate_warmup_steps",
    "decay steps": "opt_learning_rate_decay_steps",
    "step of the initial checkpoint": "init_checkpoint_step",
}
"""Settings that a log tells, and their keys."""


def settings(run: RecordedRun) -> dict[str, Any]:
    """Return the settings of a run: from its log, and from its folder's config.json if there is one."""
    found: dict[str, Any] = {name: run.summary.log.number(key) for name, key in SETTINGS.items()}
    found["precision"] = run.config.get("precision")
    system = {name: value for name, value in run.config.get("system", {}).items() if name not in ("name", "platform")}
    sections = [system.pop(name) for name in [*system] if isinstance(system[name], dict)]
    for fields in (system, *sections):
        found.update({name.replace("_", " "): value for name, value in fields.items()})
    return {name: value for name, value in found.items() if value is not None}


def _log_in(path: Path) -> Path:
    if is_regular(path):
        return path
    found = [inside for inside in children(path) if inside.match("result_*.txt") and is_regular(inside)]
    if len(found) != 1:
        raise InputError(f"{path}: expected a result file, or a folder with one result_*.txt, not {len(found)} of them")
    return found[0]


def config_beside(log: Path) -> dict[str, Any]:
    """Return the configuration of the run that wrote ``log``; empty without one."""
    path = log.with_name("config.json")
    if not is_regular(path):
        return {}
    try:
        config = json.loads(read_regular(path, MOST_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a run's configuration ({error}); mend it or move it away") from error
    ours = isinstance(config, dict) and log.name == f"result_{config.get('result_number')}.txt"
    return config if ours else {}
