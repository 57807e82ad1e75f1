"""Faults from outside, on a run that torchrun starts as the rehearsal's."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmark.config.run_config import RunConfig
from benchmark.drills.faults import Act, Fault
from benchmark.drills.injector import note_strike
from benchmark.rehearsal.torchrun import torchrun
from benchmark.results.recorded_events import read_events

LOOK_S = 0.05
SIGNALS: dict[Act, signal.Signals] = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "ask to stop": signal.SIGTERM}


class UnderTorchrun:
    """Starts attempts (``Start`` of the launcher); sends a process a signal when the run has come to a fault's step."""

    def __init__(self, config: RunConfig, faults: tuple[Fault, ...], folder: Path) -> None:
        self._config, self._faults, self._folder = config, faults, folder

    def __call__(self, environment: Mapping[str, str], log: Path) -> int:
        over = threading.Event()
        attempt = int(environment["ATTEMPT"])
        faults = [fault for fault in self._faults if fault.attempt == attempt]
        waiting = [threading.Thread(target=self._strike, args=(fault, attempt, over)) for fault in faults]
        for thread in waiting:
            thread.start()
        try:
            words = ["benchmark", "train", *command_line(self._config)]
            with _printed_to(self._folder / "console.out"):
                return torchrun(words, environment, processes=self._config.system.num_devices, port=None, log=log)
        finally:
            over.set()
            for thread in waiting:
                thread.join()

    def _strike(self, fault: Fault, attempt: int, over: threading.Event) -> None:
        run_dir = self._config.run_dir
        last = self._config.benchmark.start_iteration + fault.steps[0]
        while not over.wait(LOOK_S):
            steps = [
                event.number("iteration") or 0 for event in read_events(run_dir / "events.jsonl") if event.key == "step"
            ]
            if steps and max(steps) >= last:
                assert isinstance(fault.rank, int)
                note_strike(self._folder, run_dir, fault, rank=fault.rank, attempt=attempt, steps=fault.steps[0])
                os.kill(process_of(run_dir, fault.rank), SIGNALS[fault.act])
                return


@contextmanager
def _printed_to(path: Path) -> Iterator[None]:
    """Send what this process and its children print to a file."""
    sys.stdout.flush()
    before = os.dup(1)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(before, 1)
        os.close(before)


def process_of(run_dir: Path, rank: int) -> int:
    """The process that trains as ``rank`` in this folder. Raises ProcessLookupError where there is none."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            variables = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone since, or another user's
        here = os.fsencode(run_dir) in words and b"train" in words
        if (
            here
            and f"RANK={rank}".encode() in variables
            and not any(b"torch.distributed.run" in word for word in words)
        ):
            return int(path.name)
    raise ProcessLookupError(f"no process trains as rank {rank} in {run_dir}")


def command_line(config: RunConfig) -> list[str]:
    """The options of ``benchmark train`` for a drill's run."""
    benchmark, system = config.benchmark, config.system
    model = benchmark.model
    options: dict[str, object] = {
        "--hidden-size": model.hidden_size,
        "--seq-length": model.seq_length,
        "--vocab-size": model.vocab_size,
        "--padded-vocab-size": model.padded_vocab_size,
        "--max-position-embeddings": model.max_position_embeddings,
        "--global-batch-size": benchmark.global_batch_size,
        "--start-global-batch-size": benchmark.start_global_batch_size,
        "--train-samples": benchmark.train_samples,
        "--eval-interval-samples": benchmark.eval_interval_samples,
        "--target-log-perplexity": benchmark.target_log_perplexity,
        "--micro-batch-size": system.micro_batch_size,
        "--start-limit-s": system.start_limit_s,
        "--hang-floor-s": system.hang_floor_s,
        "--checkpoint": config.data.checkpoint,
        "--run-dir": config.run_dir,
        "--seed": config.data.seed,
        "--save-interval": config.checkpoints.save_interval,
        "--audit-interval": config.guards.audit_interval,
    }
    words = [str(word) for pair in options.items() for word in pair]
    data = ["--train-data-path", *config.data.train_data_path, "--valid-data-path", *config.data.valid_data_path]
    return [benchmark.name, *words, *data, *(["--evidence"] if config.logging.evidence else [])]
