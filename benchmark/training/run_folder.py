"""The folder of a run, opened by rank 0: what may begin or continue there, and from which of its checkpoints.

config.json     the resolved configuration          result_N.txt   the MLPerf log
events.jsonl    every event                         summary.json   how it ended; its presence means finished
inputs.json     the identities of its inputs (same_run.py)
manifests/      copies of the manifests of its inputs (benchmark/run_record/input_manifests.py)
checkpoints/    its checkpoints (checkpoints/checkpoint_folder.py)
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmark.config.run_config import RunConfig
from benchmark.machine.run_environment import run_environment
from benchmark.run_record.attempt_folder import make_run_folder
from benchmark.run_record.endings import STOP_NOTE
from benchmark.run_record.events.console import Console
from benchmark.run_record.events.event import Sink
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.events.line_files import JsonLines
from benchmark.run_record.events.mlperf_log import MlperfLog
from benchmark.run_record.events.run_clock import RunClock
from benchmark.run_record.events.telemetry import PrometheusTextfile, TensorBoard, WeightsAndBiases
from benchmark.training.checkpoints.checkpoint_choice import choose_checkpoint
from benchmark.training.checkpoints.checkpoint_folder import (
    remove_retired,
    retire_partial,
)
from benchmark.training.engine.run_progress import Progress, starting_progress
from benchmark.training.run_log import RunLog
from benchmark.training.same_run import InputIdentities, begun_with, settle_run
from foundation.errors import InputError
from foundation.outputs.lock import only_one_in


@contextmanager
def open_run_folder(
    config: RunConfig, rank: int, launch: str | None = None, inputs: InputIdentities | None = None
) -> Iterator[RunLog]:
    """Open the run's folder and its log; only rank 0 writes to it. ``launch``: the environment's launch. ``inputs``:
    identities of the run's inputs.

    Raises InputError when the folder holds a finished run, is in use by another one, or was begun with another
    configuration or other data.
    """
    benchmark, system, folder = config.benchmark, config.system, config.run_dir
    if rank != 0:
        progress = starting_progress(benchmark, config.data.seed or 0)
        yield RunLog(benchmark, system, config.precision, config.logging, progress)
        return
    make_run_folder(folder)
    refuse_finished(folder)
    with ExitStack() as stack:
        stack.enter_context(only_one_in(folder, "choose another --run-dir"))
        refuse_finished(folder)  # the run that held the lock may have ended meanwhile
        begun = begun_with(folder)
        (folder / STOP_NOTE).unlink(missing_ok=True)
        retire_partial(folder)
        remove_retired(folder)
        choice = choose_checkpoint(folder, config.checkpoints.resume_from, launch)
        seed = settle_run(config, begun, choice.progress.seed if choice.progress is not None else None, inputs)
        progress = choice.progress or starting_progress(benchmark, seed)
        mlperf_log = MlperfLog(result_path(folder, config.result_number))
        events = open_event_log(config, progress, mlperf_log)
        stack.callback(events.close)
        events.note("environment", run_environment(system.device))
        log = RunLog(benchmark, system, config.precision, config.logging, progress, events, mlperf_log)
        log.go_on_from(choice)
        yield log


def refuse_finished(folder: Path) -> None:
    """Raise InputError when the run in ``folder`` has ended."""
    if summary_path(folder).exists():
        raise InputError(f"{folder}: holds a finished run; choose another --run-dir")


def summary_path(folder: Path) -> Path:
    return folder / "summary.json"


def result_path(folder: Path, number: int) -> Path:
    return folder / f"result_{number}.txt"


def open_event_log(config: RunConfig, progress: Progress, log: MlperfLog) -> EventLog:
    """Open the run's events, on rank 0. ``progress``: where the run begins or goes on."""
    folder, logging = config.run_dir, config.logging
    console = Console(logging.log_interval, config.benchmark.expected_steps)
    sinks: list[Sink] = [log, JsonLines(folder / "events.jsonl"), console]
    if logging.tensorboard:
        sinks.append(TensorBoard(folder / "tensorboard"))
    if logging.prometheus_textfile is not None:
        name = folder.absolute().name
        sinks.append(PrometheusTextfile(logging.prometheus_textfile, run=name, system=config.system.name))
    if logging.wandb != "off":
        sinks.append(WeightsAndBiases(folder, logging.wandb))
    return EventLog(sinks, RunClock(progress.clock))
