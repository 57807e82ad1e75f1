"""Open the folder of a run on rank 0: the run begins or resumes there, or is refused.

config.json     the resolved configuration          result_N.txt   the MLPerf log
events.jsonl    every event                         summary.json   how it ended; its presence means finished
inputs.json     the identities of its inputs (same_run.py)
manifests/      copies of the manifests of its inputs (benchmark/run_record/input_manifests.py)
checkpoints/    its checkpoints (benchmark/run_record/checkpoint_folder.py)
"""

import functools
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from benchmark.config.run_config import RunConfig
from benchmark.config.run_sections import LoggingOptions
from benchmark.run_record.attempt_folder import make_run_folder
from benchmark.run_record.checkpoint_folder import remove_retired, retire_partial
from benchmark.run_record.endings import ENDINGS
from benchmark.run_record.events.console import Console
from benchmark.run_record.events.event import Sink
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.events.line_files import JsonLines
from benchmark.run_record.events.lone_process import process_identity
from benchmark.run_record.events.mlperf_log import MlperfLog
from benchmark.run_record.events.run_clock import RunClock
from benchmark.run_record.events.telemetry import PrometheusTextfile, TensorBoard, WeightsAndBiases
from benchmark.run_record.file_names import EVENTS_FILE, STOP_NOTE_FILE, TENSORBOARD_FOLDER, result_path, summary_path
from benchmark.run_record.lease import MACHINE_S, RENEWALS, FollowedLease, HeldLease, LeaseLost
from benchmark.run_record.run_completion import complete_run
from benchmark.run_record.run_progress import starting_progress
from benchmark.run_record.small_files import wait_for, warn
from benchmark.training.engine.distributed import end_process
from benchmark.training.engine.rank_environment import Environment
from benchmark.training.resume_point import choose_resume_point
from benchmark.training.run_log import RunLog
from benchmark.training.same_run import InputIdentities, begun_with, choose_seed, settle_run
from foundation.disk_answers import is_there
from foundation.errors import InputError


@contextmanager
def open_run_folder(
    config: RunConfig, rank: int, environment: Environment | None = None, inputs: InputIdentities | None = None
) -> Iterator[RunLog]:
    """Open the run's folder on rank 0, and give its log, which begins or continues at the resume point that is chosen
    here. Other ranks write nothing, and their log has no resume point yet.

    ``environment``: names the launcher that holds the run. ``inputs``: identities of the run's inputs. Raises
    InputError when the folder holds a finished run, is in use by another one, or was begun with another configuration
    or other data.
    """
    benchmark, system, folder, logging = config.benchmark, config.system, config.run_dir, config.logging
    if rank != 0:
        yield RunLog(benchmark, system, config.precision, logging)
        return
    patience_s = system.start_limit_s / 2  # the watchdog waits for twice as long
    patiently = functools.partial(wait_for, limit_s=patience_s, tell=warn)
    if environment is None or environment.lease is None:  # else the launcher has made it
        make_run_folder(folder)
    patiently(lambda: refuse_finished(folder))
    with ExitStack() as stack:
        lease = stack.enter_context(lease_of_run(folder, environment, patience_s))
        patiently(lambda: complete_run(folder))
        patiently(lambda: refuse_finished(folder))  # the run of an earlier holder may have ended meanwhile
        begun_config = patiently(lambda: begun_with(folder))
        patiently(lambda: (folder / STOP_NOTE_FILE).unlink(missing_ok=True))
        patiently(lambda: retire_partial(folder))
        remove_retired(folder)
        mlperf_log = patiently(lambda: MlperfLog(result_path(folder, config.result_number), lease.require))
        start = starting_progress(benchmark, choose_seed(config.data.seed, begun_config))
        resume_from = config.checkpoints.resume_from
        choose = functools.partial(
            choose_resume_point, resume_from=resume_from, launch=None if environment is None else environment.launch
        )
        point = patiently(lambda: choose(folder, start, mlperf_log))
        patiently(lambda: settle_run(config, begun_config, point, inputs))
        steps = benchmark.expected_steps
        sinks = patiently(lambda: event_sinks(folder, logging, steps, system.name, lease.require))
        events = EventLog([mlperf_log, *sinks], RunClock(point.progress.clock))
        stack.callback(events.close)
        log = RunLog(benchmark, system, config.precision, logging, events, mlperf_log, lease.require)
        log.resume(point)
        yield log


@contextmanager
def lease_of_run(
    folder: Path, environment: Environment | None, patience_s: float
) -> Iterator[HeldLease | FollowedLease]:
    """Follow the launcher's lease, or hold one until the end of the block where there is no launcher.

    ``patience_s``: seconds that an earlier holder's lease is waited for. Raises InputError if it is renewed.
    """
    if environment is not None and environment.lease is not None:
        followed = FollowedLease(folder, environment.lease, environment.attempt, leave_run)
        wait_for(followed.require, patience_s, lambda _: None)
        lease: HeldLease | FollowedLease = followed
    else:
        attempt = "" if environment is None else environment.attempt
        lone_process = process_identity() if environment is None or environment.world_size == 1 else ""
        token = secrets.token_hex(8)
        lease = HeldLease(folder, f"process {os.getpid()}", MACHINE_S, token, attempt, leave_run, lone_process)
        take = functools.partial(lease.try_to_take, lambda rival: rival is None)
        while not wait_for(take, patience_s, warn):
            rival = lease.watch.lease
            if rival is not None and lease.watch.renewals:
                raise InputError(f"{folder}: {rival.line()} runs there; choose another --run-dir")
            time.sleep(lease.watch.length_s / RENEWALS)
    try:
        yield lease
    finally:
        lease.leave(release=True)


def leave_run(loss: LeaseLost) -> NoReturn:
    """End this process, which must not write in the run's folder any more."""
    print(f"error: {loss}; this attempt stops", file=sys.stderr, flush=True)
    end_process(ENDINGS["failed"].exit_status)


def refuse_finished(folder: Path) -> None:
    """Raise InputError when the run in ``folder`` has ended."""
    if is_there(summary_path(folder)):
        raise InputError(f"{folder}: holds a finished run; choose another --run-dir")


def event_sinks(
    folder: Path,
    logging: LoggingOptions,
    expected_steps: int,
    system: str,
    require_lease: Callable[[], object] = lambda: None,
) -> list[Sink]:
    """Return the sinks of a run's events besides its MLPerf log. ``system``: its name. ``require_lease``: raises
    OSError while this process may not write."""
    sinks: list[Sink] = [JsonLines(folder / EVENTS_FILE, require_lease), Console(logging.log_interval, expected_steps)]
    if logging.tensorboard:
        sinks.append(TensorBoard(folder / TENSORBOARD_FOLDER))
    if logging.prometheus_textfile is not None:
        name = folder.absolute().name
        sinks.append(PrometheusTextfile(logging.prometheus_textfile, run=name, system=system))
    if logging.wandb != "off":
        sinks.append(WeightsAndBiases(folder, logging.wandb))
    return sinks
