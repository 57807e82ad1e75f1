"""The folder of a run, opened by rank 0: what may begin or continue there, and from which of its checkpoints.

config.json     the resolved configuration          result_N.txt   the MLPerf log
events.jsonl    every event                         summary.json   how it ended; its presence means finished
inputs.json     the identities of its inputs (same_run.py)
checkpoints/    its checkpoints (checkpoints/checkpoint_folder.py)
"""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmark.config.run_config import RunConfig
from benchmark.events.after_checkpoint import AfterCheckpoint
from benchmark.events.console import Console
from benchmark.events.event import Sink
from benchmark.events.event_log import EventLog
from benchmark.events.line_files import JsonLines
from benchmark.events.mlperf_log import MlperfLog
from benchmark.events.prometheus_textfile import PrometheusTextfile
from benchmark.events.run_clock import RunClock
from benchmark.events.target_eta import TargetEta
from benchmark.events.tensorboard import TensorBoard
from benchmark.events.weights_and_biases import WeightsAndBiases
from benchmark.launch.stop_note import remove_stop_note
from benchmark.machine.run_environment import run_environment
from benchmark.training.checkpoints.checkpoint_choice import choose_checkpoint
from benchmark.training.checkpoints.checkpoint_folder import (
    checkpoint_path,
    newest_checkpoint,
    remove_retired,
    retire_partial,
)
from benchmark.training.engine.run_progress import Progress, starting_progress
from benchmark.training.run_log import RunLog
from benchmark.training.same_run import InputIdentities, begun_with, settle_run
from stage.errors import InputError
from stage.outputs.lock import only_one_in


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
    folder.mkdir(parents=True, exist_ok=True)
    refuse_finished(folder)
    with ExitStack() as stack:
        stack.enter_context(only_one_in(folder, "choose another --run-dir"))
        refuse_finished(folder)  # the run that held the lock may have ended meanwhile
        begun = begun_with(folder)
        remove_stop_note(folder)
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
    folder, target = config.run_dir, config.benchmark.target_log_perplexity
    command, logging = shlex.split(config.checkpoints.after_checkpoint), config.logging
    hook = AfterCheckpoint(command, folder, config.benchmark, config.system.name, checkpoint_path) if command else None
    # the hook is closed first, and has something to tell the others
    sinks: list[Sink] = [] if hook is None else [hook]
    console = Console(logging.log_interval, config.benchmark.expected_steps)
    sinks += [log, JsonLines(folder / "events.jsonl"), console]
    if logging.tensorboard:
        sinks.append(TensorBoard(folder / "tensorboard"))
    if logging.prometheus_textfile is not None:
        sinks.append(_prometheus(logging.prometheus_textfile, folder, config.system.name, target, progress))
    if logging.wandb != "off":
        sinks.append(WeightsAndBiases(folder, logging.wandb))
    seen = [(one.trained_tokens, one.log_perplexity) for one in progress.evaluations]
    events = EventLog(sinks, TargetEta(config.benchmark, seen).follow, RunClock(progress.clock))
    if hook is not None:
        hook.notes = events
    return events


def _prometheus(path: Path, run_dir: Path, system: str, target: float | None, progress: Progress) -> PrometheusTextfile:
    last = progress.evaluations[-1] if progress.evaluations else None
    steps = newest_checkpoint(run_dir)
    whole_at = checkpoint_path(run_dir, steps).stat().st_mtime if steps is not None else None
    known = {
        "gpt3_restarts": float(progress.restarts),
        "gpt3_iteration": float(progress.iteration),
        "gpt3_trained_tokens": float(progress.trained_tokens),
        "gpt3_consumed_samples": float(progress.consumed_samples),
        "gpt3_target_log_perplexity_nats": target,
        "gpt3_evaluation_log_perplexity_nats": None if last is None else last.log_perplexity,
        "gpt3_evaluation_trained_tokens": None if last is None else float(last.trained_tokens),
        "gpt3_checkpoint_steps": None if steps is None else float(steps),
        "gpt3_checkpoint_timestamp_seconds": whole_at,
    }
    return PrometheusTextfile(path, run=run_dir.absolute().name, system=system, known=known)
