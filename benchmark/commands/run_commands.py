"""Commands that run the benchmark: train, evaluate, schedule, status, rehearse, reference-points."""

import contextlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from benchmark.config.benchmarks import REHEARSALS
from benchmark.config.field_checks import require_seed
from benchmark.config.number_formats import DEFAULT_PRECISION, Precision
from benchmark.config.run_config import RunConfig
from benchmark.config.run_options import RunOptions
from benchmark.config.runtime_variables import let_threads_sleep
from benchmark.run_record.small_files import folder_problem
from foundation.child_processes import require_loopback
from foundation.cli import choose
from foundation.errors import CheckFailed, InputError
from foundation.options.option_marks import OptionName, Positional
from foundation.sizes import require_between


def _refuse_early(config: RunConfig, *, trains: bool) -> None:
    """Raise InputError for inputs that the run would refuse, before PyTorch is imported and a folder is made.

    A process among several, or of a launcher, is refused by the run, which writes down the reason.
    """
    from benchmark.run_record.checkpoint_list import newest_checkpoint
    from benchmark.training.engine.rank_environment import read_environment
    from benchmark.training.inputs import require_inputs

    if not trains and config.data.checkpoint is None:
        raise InputError("--checkpoint is missing: the converted initial checkpoint, or a run's own")
    environment, folder = read_environment(), config.run_dir
    if environment.world_size > 1 or environment.launched_s is not None:
        return
    require_loopback()
    if trains:
        _require_folder("--run-dir", folder)
    with contextlib.suppress(OSError):  # the run waits for a disk that does not answer
        begins = not trains or newest_checkpoint(folder) is None
        require_inputs(config.data, config.benchmark, trains=trains, begins=begins)
    environment.require_one_for_each_device(config.system)


def _require_folder(option: str, folder: Path) -> None:
    if problem := folder_problem(folder):
        raise InputError(f"{option} {folder}: {problem}")


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
        from benchmark.planning.dry_run.dry_run import dry_run, format_dry_run

        config = self.config
        result = dry_run(config.benchmark, config.system, config.precision)
        text = format_dry_run(result, config.system, config.num_microbatches)
        print(json.dumps(asdict(result)) if self.json else text)
        if result.complaint is not None:
            raise CheckFailed(result.complaint)
        return 0

    def _train(self) -> int:
        _refuse_early(self.config, trains=True)
        if self.config.system.device == "cpu":
            let_threads_sleep()
        from benchmark.training.machine.pytorch_import import import_pytorch

        import_pytorch()
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
        _refuse_early(self.config, trains=False)
        if self.config.system.device == "cpu":
            let_threads_sleep()
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
class StatusCommand:
    """Print the status of runs: state, step, speed, attempts, use of time, expected end. A run's status has also its
    loss, MFU and last checkpoint, and why its attempts ended; the status of a folder of runs is a table.

    Example: python -m benchmark status LOG_DIR --follow
    """

    run_dirs: Positional[tuple[Path, ...]] = (Path("runs/rehearsal"),)
    """Folders of runs, including runs in progress, or folders of such folders."""
    follow: bool = False
    """Print the status again every few seconds, until no run is in progress."""
    json: bool = False
    """Print JSON: an object for one run, a list for several."""

    def run(self) -> int:
        from benchmark.run_record.status.status_text import status

        status(self.run_dirs, as_json=self.json, follow=self.follow)
        return 0


@dataclass(frozen=True)
class RehearseCommand:
    """Run the whole benchmark at a small size on this machine, from the corpus to review and report. Valid outputs of
    earlier calls are used again; a killed run is continued; otherwise each call is a new run with a new seed.
    rehearsal_llama has no checkpoint. With --package the command makes the runs of a result, three of rehearsal or
    ten of rehearsal_llama, then packages and reviews them; finished runs in the folder count.

    Example: python -m benchmark rehearse rehearsal_llama --work-dir runs/rehearsal_llama
    """

    benchmark: Annotated[Positional[str], OptionName(metavar="BENCHMARK")] = "rehearsal"
    """rehearsal: of GPT-3; rehearsal_llama: of Llama 3.1."""
    c4_path: Path | None = None
    """Use this text instead of the generated one: DIR/en/c4-train.*.json.gz and DIR/c4-validation*.json."""
    work_dir: Path | None = None
    """Folder for all outputs; runs/BENCHMARK by default."""
    seed: int | None = None
    """Seed of the run's data order; drawn at random by default."""
    master_port: int | None = None
    """Port for the processes to meet at; a free one by default."""
    precision: Precision = DEFAULT_PRECISION
    """Number format of the runs, as of train."""
    package: bool = False
    """Make the runs of a result, package and review them; the package is no submission."""

    def __post_init__(self) -> None:
        choose(self.benchmark, REHEARSALS, "rehearsal")
        _require_folder("--work-dir", self._folder)
        if self.seed is not None:
            require_seed(self.seed)

    @property
    def _folder(self) -> Path:
        return self.work_dir or Path("runs") / self.benchmark

    def run(self) -> int:
        benchmark, work_dir = REHEARSALS[self.benchmark], self._folder
        if self.package:
            if self.c4_path is not None or self.seed is not None:
                raise InputError(
                    "--package: other text has no target, and seeds must differ; leave out --c4-path and --seed"
                )
            from benchmark.planning.machine.describe_system import describe_this_machine
            from benchmark.rehearsal.rehearsal_package import rehearse_package

            return rehearse_package(
                benchmark,
                work_dir,
                describe_this_machine,
                master_port=self.master_port,
                precision=self.precision,
            )
        from benchmark.rehearsal.rehearse import rehearse

        return rehearse(
            benchmark,
            work_dir,
            c4_path=self.c4_path,
            seed=self.seed,
            master_port=self.master_port,
            precision=self.precision,
        )


@dataclass(frozen=True)
class ReferencePointsCommand:
    """Write the convergence points of runs in the format of the official reference points. The runs are finished ones,
    or rehearsals made now, each with a seed of its own. Review judges rehearsals by the committed files,
    benchmark/judging/results/rehearsal_points.json and rehearsal_llama_points.json.

    Example: python -m benchmark reference-points --seeds 8 --output points.json
    """

    runs: Positional[tuple[Path, ...]] = ()
    """Folders of finished runs."""
    benchmark: str = "rehearsal"
    """The rehearsal to run: rehearsal or rehearsal_llama."""
    seeds: int = 0
    """Number of rehearsals to run first, in --work-dir."""
    work_dir: Path = Path("runs/reference_points")
    """Folder for these runs; runs already finished there count."""
    output: Path = Path("points.json")
    """File to write."""

    def run(self) -> int:
        from benchmark.rehearsal.reference_points import rehearse_seeds, write_reference_points

        benchmark = REHEARSALS[choose(self.benchmark, REHEARSALS, "rehearsal")]
        require_between(self.seeds, 0, math.inf, "--seeds")
        _require_folder("--work-dir", self.work_dir)
        runs = [*self.runs, *rehearse_seeds(benchmark, self.seeds, self.work_dir)]
        print(f"{self.output}: {write_reference_points(runs, self.output)}")
        return 0
