"""The MLPerf log, ``result_N.txt``: lines of ``:::MLLOG`` that the official checkers read.

Form and order are those of docs/facts/mlperf_review.md 2, 3.9. The words eval_accuracy, eval_error,
global_batch_size and submission_benchmark must appear in no other key, metadata or file name: the official RCP checker
looks for them in the raw text of every line (docs/facts/mlperf_review.md 4.14).
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from benchmark.config.run_sections import LoggingOptions
from benchmark.config.system_config import System
from benchmark.run_record.events.event import Event
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.events.line_files import LineFile
from benchmark.run_record.file_names import CONFIG_FILE
from foundation.file_formats.json_files import DAMAGED


@dataclass(frozen=True)
class LogMark:
    """The position in the MLPerf log at some moment; a checkpoint stores it."""

    size: int = 0
    """Bytes of the lines that have reached the disk."""
    unwritten_lines: tuple[str, ...] = ()
    """Lines after those, which had not reached the disk yet."""


class MlperfLog:
    """Write the events marked for the MLPerf log, each at once; no other event ever enters the file."""

    def __init__(self, path: Path, require_lease: Callable[[], object] = lambda: None) -> None:
        """Open the log; the lines of an earlier attempt stay until :meth:`go_on`. ``require_lease``: of
        :class:`LineFile`."""
        self.name, self.path = path.name, path
        self._file = LineFile(path, require_lease)
        self._on_disk: tuple[int, Event | None] = self._file.size, None
        """Bytes that are on the disk, and the newest event among them. The pair is replaced as a whole, so that another
        thread sees a consistent one."""

    def go_on(self, mark: LogMark) -> int:
        """Continue the log from ``mark``: truncate it there, and write the mark's unwritten lines.

        No events for this log may be written meanwhile. Returns the number of lost bytes that had reached the disk;
        usually 0. Raises OSError.
        """
        self._file.cut(mark.size)
        lost = max(0, mark.size - self._file.size)
        for line in mark.unwritten_lines:
            self._file.write(line.encode())
        self._file.sync()
        self._on_disk = self._file.size, None
        return lost

    def started_clock(self) -> tuple[LogMark, int] | None:
        """Return the place in the log where the run's clock started, and the number of restarts since; None if the
        clock never started, or there is no log, or a damaged one. Raises OSError if the disk does not say."""
        size, restarts, started = 0, 0, None
        try:
            for line in self.path.read_bytes().splitlines(keepends=True):
                size += len(line)
                key = json.loads(line.removeprefix(b":::MLLOG "))["key"]
                restarts += key == "restart"
                if key == "epoch_start" and started is None:
                    started = LogMark(size)
        except (FileNotFoundError, *DAMAGED):
            return None
        return None if started is None else (started, restarts)

    def mark(self, pending: Sequence[Event]) -> LogMark:
        """Return the log's position, including the events in ``pending`` that it has not taken.

        ``pending`` are the newest events, including ones for other sinks. The call waits for no disk. The thread that
        reports this log's events must make it.
        """
        size, newest = self._on_disk
        written_count = next((number for number, event in enumerate(pending, 1) if event is newest), 0)
        return LogMark(size, tuple(_line(event) for event in pending[written_count:] if event.mlperf))

    def write(self, event: Event) -> None:
        """Write an event and wait until it is on the disk. Raises OSError, for example for a full disk; the same call
        again mends the log."""
        if event.mlperf:
            self._file.cut(self._on_disk[0])  # a sync that failed may have lost what is behind
            self._file.write(_line(event).encode())
            self._file.sync()
            self._on_disk = self._file.size, event

    def close(self) -> None:
        self._file.close()


def _line(event: Event) -> str:
    record = {
        "namespace": "",
        "time_ms": event.time_ms,
        "event_type": event.kind,
        "key": event.key,
        "value": event.value,
        "metadata": {"file": event.file, "lineno": event.lineno, **event.metadata},
    }
    return f":::MLLOG {json.dumps(record)}"


def progress_fields(benchmark: Benchmark, tokens: int) -> dict[str, int]:
    """Metadata that tell how far training is, ``tokens`` since the initial checkpoint."""
    return {benchmark.log_keys.progress: logged_progress(benchmark, tokens)}


def logged_progress(benchmark: Benchmark, tokens: int) -> int:
    """The same number in the unit of the benchmark's log."""
    return tokens if benchmark.log_keys.progress == "epoch_num" else tokens // benchmark.model.seq_length


def block_fields(benchmark: Benchmark, first: int, count: int, *, ended: bool) -> dict[str, int]:
    """Metadata of a block of ``count`` tokens from ``first`` on, which begins or has ``ended``."""
    if benchmark.log_keys.progress == "epoch_num":
        return {"first_epoch_num": first, "epoch_count": count}
    return progress_fields(benchmark, first + count if ended else first)


def log_configuration(
    events: EventLog, benchmark: Benchmark, system: System, submission: LoggingOptions, *, seed: int, eval_tokens: int
) -> None:
    """Log the keys about submitter and hyperparameters, in the order of published logs.

    Numbers of steps follow the rules' formula, ceil(samples / batch size). ``eval_tokens`` is the validation set's
    number of tokens, which most published logs give as eval_samples.
    """
    size, keys, optimizer = benchmark.global_batch_size, benchmark.log_keys, benchmark.optimizer
    events.point("submission_benchmark", benchmark.mlperf_name)
    events.point("submission_org", submission.submission_org)
    events.point("submission_division", submission.submission_division)
    events.point("submission_status", submission.submission_status)
    events.point("submission_platform", system.platform)
    events.point("seed", seed)
    events.point("global_batch_size", size)
    events.point("gradient_accumulation_steps", system.num_microbatches(size))
    events.point("max_sequence_length", benchmark.model.seq_length)
    events.point("eval_samples", benchmark.evaluation_sequences or eval_tokens)
    events.point("init_checkpoint_step", math.ceil(benchmark.start_samples / size))
    events.point("opt_name", keys.optimizer)
    events.point("opt_base_learning_rate", optimizer.lr)
    events.point("opt_end_learning_rate", optimizer.min_lr)
    warm_up_steps, last_step = (
        math.ceil(samples / size) for samples in (optimizer.lr_warmup_samples, optimizer.lr_decay_samples)
    )
    events.point("opt_learning_rate_warmup_steps", warm_up_steps)
    if benchmark.max_steps is None:
        events.point("opt_learning_rate_decay_steps", last_step)
    else:
        events.point("opt_learning_rate_decay_steps", last_step - warm_up_steps)
        events.point("max_steps", benchmark.max_steps)
    events.point("opt_learning_rate_decay_schedule", "cosine with linear warmup")
    events.point(f"opt_{keys.optimizer}_beta_1", optimizer.adam_beta1)
    events.point(f"opt_{keys.optimizer}_beta_2", optimizer.adam_beta2)
    events.point(f"opt_{keys.optimizer}_epsilon", optimizer.adam_eps)
    events.point(keys.weight_decay, optimizer.weight_decay)
    events.point("opt_gradient_clip_norm", optimizer.clip_grad)
    if benchmark.target_log_perplexity is not None:
        events.point("target_accuracy", benchmark.target_log_perplexity)


def log_disclosure(events: EventLog, system: System, *, precision: Precision, fp32_products: str) -> None:
    """Log the keys that every log has from ruleset 6.1.0 on: lowest precisions, layout, file of the configuration.

    ``precision``: that of the run. ``fp32_products``: the format in which the device multiplies FP32
    numbers, fp32 or tf32.
    """
    row = NUMBER_FORMATS[precision]
    events.point("lowest_numerical_precision_in_linear", row.logged_linear or fp32_products)
    events.point("lowest_numerical_precision_in_attn", row.logged_values or fp32_products)
    # Shards of weights are sent as products take them, activations as values; sums over replicas are FP32.
    sent = row.logged_linear if system.data_parallel > system.replicas else row.logged_values
    events.point("lowest_numerical_precision_in_comm", (system.num_devices > system.replicas and sent) or "fp32")
    events.point("tensor_parallelism", system.tensor_parallel)
    events.point("pipeline_parallelism", system.pipeline_parallel)
    events.point("context_parallelism", 1)
    events.point("expert_parallelism", 1)
    events.point("micro_batch_size", system.micro_batch_size)
    events.point("config_filename", CONFIG_FILE)
