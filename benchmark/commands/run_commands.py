"""Commands that run the benchmark: train, next-attempt, evaluate, schedule, preflight, goodput."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from benchmark.config.run_config import RunConfig
from benchmark.config.run_options import RunOptions
from stage.errors import CheckFailed, InputError


@dataclass(frozen=True)
class TrainCommand:
    """Train a benchmark to its quality target, timed and logged. One process per device: torchrun or srun.

    Example: torchrun --nproc-per-node 2 -m benchmark train rehearsal --train-data-path 0.5 A 0.5 B
    --valid-data-path 1.00 V --checkpoint ckpt4000_bf16 --run-dir runs/1

    Exit status: 0 target reached, 1 not reached, 2 bad input, 70 something failed, 75 interrupted and saved. After 70
    and 75 the same command continues.
    """

    config: RunOptions
    dry_run: bool = False
    """Run a step of each kind of rank on tensors without memory, in this process; print what it would hold, compute and
    send. Exit status 1 when the devices' memory does not suffice."""
    json: bool = False
    """Print the dry run's result as JSON."""

    def run(self) -> int:
        return self._dry_run() if self.dry_run else self._train()

    def _dry_run(self) -> int:
        from benchmark.planning.dry_runs.dry_run import dry_run, format_dry_run

        result = dry_run(self.config)
        print(json.dumps(asdict(result)) if self.json else format_dry_run(result, self.config))
        if result.complaint is not None:
            raise CheckFailed(result.complaint)
        return 0

    def _train(self) -> int:
        from benchmark.training.process import run_process

        run_process(self.config)


@dataclass(frozen=True)
class NextAttemptCommand:
    """What to do after an attempt at a run has ended; for launchers such as run_gpt3.sh.

    Example: python -m benchmark next-attempt LOG_DIR --status 137 --spare 2 --down-nodes n7

    Prints one line for people on standard error, and one for scripts: done, again, requeue or stop; the exit status to
    end with; the hosts to leave out.
    """

    run_dir: tyro.conf.Positional[Path]
    """Folder of the run."""
    status: int
    """Exit status of the attempt."""
    spare: int = 0
    """Nodes that were allocated beyond those a run takes, failed ones not counted; below 0: so many are missing."""
    down_nodes: tuple[str, ...] = ()
    """Nodes of the allocation that do not answer."""

    def run(self) -> int:
        from benchmark.supervision.next_attempt import decide_and_note
        from benchmark.training.checkpoints.checkpoint_folder import newest_checkpoint

        if not self.run_dir.is_dir():
            raise InputError(f"{self.run_dir}: no such folder; expected that of a run")
        decision = decide_and_note(
            self.run_dir,
            self.status,
            saved_steps=newest_checkpoint(self.run_dir),
            spare_hosts=self.spare,
            down_hosts=self.down_nodes,
        )
        print(decision.reason, file=sys.stderr)
        print(decision.action, decision.status, *decision.exclude)
        return 0


@dataclass(frozen=True)
class EvaluateCommand:
    """Log perplexity of a checkpoint, converted or a run's own, on the whole validation set.

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
    """Every step of a run: consumed samples, learning rate, whether it evaluates.

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
    """Whether machines and inputs will carry a run: one line for each check, with its mend.

    Alone it checks this machine; with BENCHMARK and a run's options also disks and inputs, as train would; started like
    train, one process per device, also that nodes, links and clocks agree.

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
    """Options of ``preflight`` where no benchmark is named."""

    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        return _preflight(None, as_json=self.json)


def _preflight(config: RunConfig | None, *, as_json: bool) -> int:
    from benchmark.preflight.run_checks import run_checks
    from benchmark.training.engine.distributed import end_process, read_environment

    status = run_checks(config, as_json=as_json)
    if read_environment().world_size > 1:
        end_process(status)
    return status


@dataclass(frozen=True)
class GoodputCommand:
    """Where the wall time of a run went, over all its attempts: queue, start, init, steps that count, evaluations,
    checkpoints, lost steps, hangs, idle; and what each interruption cost.

    Example: python -m benchmark goodput LOG_DIR --json
    """

    run_dir: tyro.conf.Positional[Path]
    """Folder of the run, also of one that is still going on."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.goodput.goodput_text import goodput

        print(goodput(self.run_dir, as_json=self.json))
        return 0
