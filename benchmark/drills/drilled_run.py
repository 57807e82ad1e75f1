"""One run of a drill, from its first attempt to its end, with its faults."""

import contextlib
import dataclasses
import io
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.config.run_config import RunConfig
from benchmark.drills.aftermath import Aftermath, read_aftermath
from benchmark.drills.damage import damage_files
from benchmark.drills.faults import Damage, Fault
from benchmark.drills.injector import run_disturbed
from benchmark.rehearsal.forked_ranks import run_ranks
from benchmark.supervision.launcher import Start, keep_running
from benchmark.supervision.next_attempt import Decision
from benchmark.training.checkpoints.checkpoint_folder import newest_checkpoint

MOST_LAUNCHES = 6
"""After so many times through the queue a run is left alone."""


@dataclass(frozen=True)
class Disturbed:
    """A run and what disturbs it."""

    config: RunConfig
    faults: tuple[Fault, ...] = ()
    """Drawn ones."""
    damage: tuple[Damage, ...] = ()
    first_options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration that the first attempt alone has."""
    continued: bool = False
    """A person starts it again after it has stopped, once."""


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    decisions: tuple[Decision, ...]
    seconds: float
    aftermath: Aftermath


def run_to_its_end(disturbed: Disturbed, folder: Path, start: Start | None = None) -> Ended:
    """Start the run in ``folder`` and go on until it is done or given up; the queue starts it again when it is saved.

    ``start``: starts the processes of an attempt; forks them unless given.
    """
    shutil.rmtree(folder, ignore_errors=True)
    disturbed.config.run_dir.mkdir(parents=True)
    started = time.perf_counter()
    start = start or (lambda environment, log: _fork(disturbed, folder, environment, log))
    decisions = _through_the_queue(disturbed, folder, start)
    return Ended(tuple(decisions), time.perf_counter() - started, read_aftermath(disturbed.config, folder))


def _through_the_queue(disturbed: Disturbed, folder: Path, start: Start) -> Sequence[Decision]:
    run_dir, decisions = disturbed.config.run_dir, []
    by_person = 1 if disturbed.continued else 0
    for launch in range(MOST_LAUNCHES):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            decision = keep_running(run_dir, start, lambda: newest_checkpoint(run_dir), launch=f"drill-{launch}")
        (folder / f"launcher_{launch}.txt").write_text(said.getvalue())
        decisions.append(decision)
        if decision.action == "requeue":
            continue
        if decision.action == "stop" and by_person:
            by_person = 0
            (run_dir / "exit").unlink(missing_ok=True)
            continue
        break
    return decisions


def _fork(disturbed: Disturbed, folder: Path, environment: Mapping[str, str], log: Path) -> int:
    attempt, config = int(environment["ATTEMPT"]), disturbed.config
    prepare_attempt(disturbed, attempt)
    if attempt == 1:
        config = dataclasses.replace(config, **disturbed.first_options)
    return run_ranks(
        run_disturbed,
        (config, disturbed.faults, folder),
        processes=config.system.num_devices,
        environment=environment,
        log=log,
    )


def prepare_attempt(disturbed: Disturbed, attempt: int) -> None:
    """Do to the files what is to happen before it."""
    for damage in disturbed.damage:
        if damage.before_attempt == attempt:
            damage_files(damage, disturbed.config.run_dir, Path(disturbed.config.data.train_data_path[1]))
