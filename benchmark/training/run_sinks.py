"""Choose the sinks that a run's events go to, by its options."""

import shlex
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
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path, newest_checkpoint
from benchmark.training.engine.run_progress import Progress


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
