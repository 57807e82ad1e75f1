"""Choose the sinks that a run's events go to, by its options."""

from benchmark.config.run_config import RunConfig
from benchmark.events.console import Console
from benchmark.events.event import Sink
from benchmark.events.event_log import EventLog
from benchmark.events.line_files import JsonLines
from benchmark.events.mlperf_log import MlperfLog
from benchmark.events.run_clock import RunClock
from benchmark.events.telemetry import PrometheusTextfile, TensorBoard, WeightsAndBiases
from benchmark.training.engine.run_progress import Progress


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
