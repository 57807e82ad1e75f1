"""Commands that run the benchmark: train, evaluate, schedule, preflight, status."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from benchmark.config.run_config import RunConfig
from benchmark.config.run_options import RunOptions
from stage.errors import CheckFailed


@dataclass(frozen=True)
class TrainCommand:
    """Train a benchmark to its quality target, timed and logged. Start one process per device, with torchrun or srun.

    Example: torchrun --nproc-per-node 2 -m benchmark train rehearsal --train-data-path 0.5 A 0.5 B
    --valid-data-path 1.00 V --checkpoint ckpt4000_bf16 --run-dir runs/1

    Exit status: 0 target reached, 1 not reached, 2 bad input, 70 something failed, 75 interrupted and saved. After 70
    and 75 the same command continues.
    """

    config: RunOptions
    dry_run: bool = False
    """Run a step of each kind of rank on tensors without memory, in this process; print the memory, computation and
    messages of the rank. Exit status 1 if the devices' memory does not suffice."""
    json: bool = False
    """Print the dry run's result as JSON."""

    def run(self) -> int:
        return self._dry_run() if self.dry_run else self._train()

    def _dry_run(self) -> int:
        from benchmark.planning.dry_runs.dry_run import dry_run
        from benchmark.planning.dry_runs.dry_run_text import format_dry_run

        result = dry_run(self.config)
        print(json.dumps(asdict(result)) if self.json else format_dry_run(result, self.config))
        if result.complaint is not None:
            raise CheckFailed(result.complaint)
        return 0

    def _train(self) -> int:
        from benchmark.training.process import run_process

        run_process(self.config)


@dataclass(frozen=True)
class EvaluateCommand:
    """Compute the log perplexity of a checkpoint, converted or a run's own, on the whole validation set.

    Example: torchrun --nproc-per-node 2 -m benchmark evaluate rehearsal --checkpoint ckpt4000_bf16
    --valid-data-path 1.00 V
    """

    config: RunOptions
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.training.engine.distributed import end_process
        from benchmark.training.evaluate_checkpoint import evaluate_checkpoint, format_quality

        quality = evaluate_checkpoint(self.config)
        if quality is not None:  # on rank 0
            print(json.dumps(asdict(quality)) if self.json else format_quality(quality))
        end_process(0)


@dataclass(frozen=True)
class ScheduleCommand:
    """Print every step of a run: consumed samples, learning rate, and whether an evaluation follows.

    Example: python -m benchmark schedule gpt3_175b --global-batch-size 2048 --json
    """

    config: RunOptions
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.config.schedule import format_schedule, schedule_as_json

        benchmark = self.config.benchmark
        print(json.dumps(schedule_as_json(benchmark)) if self.json else format_schedule(benchmark))
        return 0


@dataclass(frozen=True)
class PreflightCommand:
    """Check whether machines and inputs are fit for a run: one line for each check, with its mend.

    Without a benchmark the command checks this machine; with BENCHMARK and a run's options also disks and inputs, as
    train would; started like train, one process per device, also that nodes, links and clocks agree. With
    --first-contact it tests everything that needs a GPU: see preflight --first-contact --help.

    Example: srun python -m benchmark preflight gpt3_175b --run-dir LOG_DIR --checkpoint ckpt4000_bf16

    Exit status: 0 every check that applies ran and none failed, 1 one failed, 2 bad input.
    """

    config: RunOptions
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        return _preflight(self.config, as_json=self.json)


@dataclass(frozen=True)
class MachinePreflightCommand:
    """Options of ``preflight`` without a benchmark."""

    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        return _preflight(None, as_json=self.json)


def _preflight(config: RunConfig | None, *, as_json: bool) -> int:
    from benchmark.preflight.checks.run_checks import run_checks
    from benchmark.training.engine.distributed import end_process, read_environment

    status = run_checks(config, as_json=as_json)
    if read_environment().world_size > 1:
        end_process(status)
    return status


@dataclass(frozen=True)
class StatusCommand:
    """Print the status of runs: state, step and number of steps, loss, speed, MFU, last checkpoint, attempts and why
    they ended; the use of the wall time over all attempts; when the target is expected. For a folder of runs, a table
    is printed.

    Example: python -m benchmark status LOG_DIR --follow
    """

    run_dirs: tyro.conf.Positional[tuple[Path, ...]] = (Path("runs/rehearsal"),)
    """Folders of runs, including runs in progress, or folders of such folders."""
    follow: bool = False
    """Print the status again every few seconds, until no run is in progress."""
    json: bool = False
    """Print JSON: an object for one run, a list for several."""

    def run(self) -> int:
        from benchmark.status.status_text import status

        status(self.run_dirs, as_json=self.json, follow=self.follow)
        return 0
