"""Read the files of a run: its log, and the configuration and events in its run folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmark.judging.results.run_summary import RunSummary
from benchmark.run_record.events.log_in_folder import config_beside, log_in
from benchmark.run_record.events.mllog import as_number, read_log
from benchmark.run_record.events.recorded_events import RecordedEvents, read_events
from benchmark.run_record.file_names import EVENTS_FILE


@dataclass(frozen=True)
class RecordedRun:
    """One run. ``config`` and ``events`` are empty for a log outside its run folder."""

    path: Path
    """Path of the MLPerf log."""
    summary: RunSummary
    config: Mapping[str, Any]
    """Resolved configuration from ``config.json``."""
    events: RecordedEvents

    @property
    def target(self) -> float | None:
        """Return the configured target of the run, or None if it has none; for a log alone, its benchmark's target."""
        configured = self.config.get("benchmark", {})
        if "target_log_perplexity" in configured:
            return as_number(configured["target_log_perplexity"])
        return self.summary.target

    @property
    def is_judged(self) -> bool:
        """Return whether a review can judge the run: not one that was configured without a target."""
        return self.target is not None or "target_log_perplexity" not in self.config.get("benchmark", {})

    @cached_property
    def inputs(self) -> Mapping[str, Any]:
        """Return data and checkpoint with their digests, as the run recorded them."""
        return self.events.last_note("inputs")

    @property
    def digests(self) -> Mapping[str, Any]:
        """Return the MD5 of each input file by name; data or a checkpoint without a manifest has None."""
        md5_by_name: dict[str, Any] = {}
        for path, entry in self.inputs.items():
            digests = entry.get("md5") if isinstance(entry, dict) else None
            md5_by_name.update(digests if isinstance(digests, dict) else {path.rpartition("/")[2]: None})
        return md5_by_name

    @cached_property
    def environment(self) -> Mapping[str, Any]:
        """Return commit, versions and devices, as the run recorded them."""
        return self.events.last_note("environment")


def read_recorded_run(path: Path | str) -> RecordedRun:
    """Read a result file, or the result file in a run folder.

    Raises InputError for any other path, and for a configuration that cannot be read.
    """
    return with_records(RunSummary(read_log(log_in(Path(path)))))


def with_records(summary: RunSummary) -> RecordedRun:
    """Return a run whose log is read, with the files beside its log. Raises InputError for a configuration that cannot
    be read."""
    path = summary.log.path
    config = config_beside(path)
    return RecordedRun(path, summary, config, read_events(path.with_name(EVENTS_FILE)) if config else RecordedEvents())


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
"""Settings in a log, and their keys."""


def settings(run: RecordedRun) -> dict[str, Any]:
    """Return the settings of a run: from its log, and from its folder's config.json, if it exists."""
    values: dict[str, Any] = {name: run.summary.log.number(key) for name, key in SETTINGS.items()}
    values["precision"] = run.config.get("precision")
    system = {name: value for name, value in run.config.get("system", {}).items() if name not in ("name", "platform")}
    sections = [system.pop(name) for name in [*system] if isinstance(system[name], dict)]
    for fields in (system, *sections):
        values.update({name.replace("_", " "): value for name, value in fields.items()})
    return {name: value for name, value in values.items() if value is not None}
