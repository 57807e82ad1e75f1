"""Run, evaluate and review the benchmark: python -m benchmark COMMAND --help"""

# Every command is a frozen dataclass whose fields are its options and whose ``run`` does the work (stage/cli.py).
# What takes long to import is imported there, so that --help and errors come at once.

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import tyro

from benchmark.config.run_config import RunConfig
from benchmark.config.run_options import parse_run
from benchmark.results.subjects import NEWEST_RULESET
from benchmark.slice_run.slice_config import SliceOptions
from stage.cli import Command, one_line_usage_error
from stage.errors import CheckFailed, InputError, run_command

RunOptions = Annotated[tyro.conf.OmitArgPrefixes[RunConfig], tyro.conf.arg(name="run")]
"""BENCHMARK [--system NAME] [overrides]: see benchmark/config/run_options.py."""


@dataclass(frozen=True)
class TrainCommand:
    """Train a benchmark to its quality target, timed and logged. One process per device: torchrun or srun.

    Example: torchrun --nproc-per-node 2 -m benchmark train rehearsal --train-data-path 0.5 A 0.5 B
    --valid-data-path 1.00 V --checkpoint ckpt4000_bf16 --run-dir runs/1

    Exit status: 0 target reached, 1 not reached, 2 bad input, 70 a process failed, 75 interrupted and saved. After 70
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
class PlannedRun(RunConfig):
    """A run that may be another code's, with its precisions."""

    precision: Literal["bf16", "fp32", "fp8"] = "bf16"  # type: ignore[assignment]
    """Of the computation; fp8 for stacks that have it."""


@dataclass(frozen=True)
class PlanCommand:
    """Memory, messages, step time in parts and time to train of a run, without its devices, each with its doubt.

    Example: python -m benchmark plan gpt3_175b --system h200_n8 --global-batch-size 2048 --json

    Exit status: 0 it fits the devices' memory, 1 it does not, 2 bad input. Takes some 20 seconds for 175B, a search one
    or two minutes.
    """

    config: Annotated[tyro.conf.OmitArgPrefixes[PlannedRun], tyro.conf.arg(name="run")]
    stack: str = "ours"
    """Whose code runs: ours, megatron, nemo, or another of benchmark/planning/step_model/stacks.py."""
    search: bool = False
    """Rank all layouts of the system's devices that fit in memory by their time to the target."""
    backtest: bool = False
    """Compare the model of a step with every published result instead; needs no BENCHMARK."""
    what_if: tuple[str, ...] = ()
    """Changes of machine or code: nvlink=2x network=2x matmul=1.1x tp-overlap=off jitter=off ..."""
    network_gbit_s: float | None = None
    """Gbit/s of each device's card to other nodes, one way; as usual for the accelerator unless given."""
    mfu: float | None = None
    """Model FLOP/s utilisation to count with instead, as a fraction of the dense BF16 peak."""
    tflops: float | None = None
    """Model TFLOP/s per device to count with instead, such as a run of yours printed."""
    watts: float | None = None
    """Power of a device with its share of the machine: the energy to the target."""
    dollars_per_hour: float | None = None
    """Price of a device with its share of the machine: the price of the target."""
    calibration: Path | None = None
    """calibration.json of a slice on such devices: its rates in the place of the published ones."""
    json: bool = False
    """Print JSON."""

    def __post_init__(self) -> None:
        if not isinstance(self.config, PlannedRun):
            fields = {field.name: getattr(self.config, field.name) for field in dataclasses.fields(self.config)}
            object.__setattr__(self, "config", PlannedRun(**fields))

    def run(self) -> int:
        from benchmark.planning.plan_printing.plan_command import print_backtest, print_plan, print_search
        from benchmark.planning.run_plans.plan_options import PlanOptions

        if self.backtest:
            return print_backtest(as_json=self.json)
        fields = {field.name: getattr(self.config, field.name) for field in dataclasses.fields(RunConfig)}
        config = RunConfig(**{**fields, "precision": "fp32" if self.config.precision == "fp32" else "bf16"})
        options = PlanOptions(
            stack=self.stack,
            precision="fp8" if self.config.precision == "fp8" else "bf16",
            network_gbit_s=self.network_gbit_s,
            mfu=self.mfu,
            tflops=self.tflops,
            watts=self.watts,
            dollars_per_hour=self.dollars_per_hour,
            what_if=self.what_if,
        )
        made = print_search if self.search else print_plan
        return made(config, options, as_json=self.json, calibration=self.calibration)


@dataclass(frozen=True)
class BacktestCommand:
    """Options of ``plan --backtest`` where no benchmark is named."""

    backtest: bool = False
    """Compare the model of a step with every published result."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.planning.plan_printing.plan_command import print_backtest

        return print_backtest(as_json=self.json)


@dataclass(frozen=True)
class SliceCommand:
    """A few layers of a benchmark at their true width on this machine's GPUs, by the code that trains: step time, MFU,
    memory, where the time goes, and calibration.json, from which plan computes the whole system's step. The first thing
    to run on any GPU; less than two minutes.

    Example: python -m benchmark slice gpt3_175b --layers 2 --json

    Exit status: 0 measured, 1 a process failed (out of memory: the line says which --layers fits), 2 bad input.
    """

    options: Annotated[tyro.conf.OmitArgPrefixes[SliceOptions], tyro.conf.arg(name="slice")]
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.planning.plan_printing.plan_command import whole_system
        from benchmark.slice_run.run_slice import run_slice
        from benchmark.slice_run.slice_text import format_slice

        result, calibration = run_slice(self.options)
        planned = whole_system(calibration)
        if self.json:
            print(json.dumps({**asdict(result), "whole_system": planned}))
        else:
            print(format_slice(result, calibration))
            if planned is not None:
                print(planned)
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
class ReviewCommand:
    """Whether results would be accepted: the official checkers, and rules of our own, on logs and packages.

    Exit status 0 only if every check that applies really ran on every file and passed.

    Example: python -m benchmark review ACME --ruleset 4.1.0
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Result files, folders of them, submission packages, or a folder of packages."""
    ruleset: str | None = None
    """3.0.0, 3.1.0, 4.0.0 or 4.1.0; by default that of the round in the path (v4.0), or the newest."""
    json: Path | None = None
    """Write the whole review here as JSON."""
    compare: tuple[Path, Path] | None = None
    """Review two results and show them side by side."""

    def run(self) -> int:
        from benchmark.review.review_and_print import review_and_print

        return review_and_print(self.paths, self.ruleset, self.json, self.compare)


@dataclass(frozen=True)
class RehearseCommand:
    """The whole benchmark at a small size on this machine: corpus, tokenizer, dataset, checkpoint, conversion,
    checksums, timed run under torchrun, review, report. What is already made and valid is used again; a killed run is
    continued; otherwise each call is a new run with a new seed.

    Example: python -m benchmark rehearse --work-dir runs/rehearsal
    """

    c4_path: Path | None = None
    """Use this text instead of the generated one: DIR/en/c4-train.*.json.gz and DIR/c4-validation*.json."""
    work_dir: Path = Path("runs/rehearsal")
    """Where everything is written."""
    seed: int | None = None
    """Seed of the run's data order; drawn unless given."""
    master_port: int | None = None
    """Port for the processes to meet at; a free one unless given."""

    def run(self) -> int:
        from benchmark.rehearsal.rehearse import rehearse

        return rehearse(self.work_dir, c4_path=self.c4_path, seed=self.seed, master_port=self.master_port)


@dataclass(frozen=True)
class DrillCommand:
    """Inject faults into short runs of the rehearsal, and print what came of each: whether the run healed without a
    person, or ended with the right words; steps lost; seconds to the next loss; whether weights, moments, losses and
    evaluations are those of an undisturbed run, to the bit.

    Example: python -m benchmark drill kill-in-shards stop-for-ever

    Exit status: 0 every drill came out right, 1 one did not, 2 bad input.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Drills; all of them unless given."""
    list: bool = False
    """Print what there is: names, what happens, and which incident it repeats."""
    fuzz: int = 0
    """Instead: so many runs, each with two or three faults at random."""
    seed: int = 0
    """Of the faults' steps, ranks and delays."""
    work_dir: Path = Path("runs/drills")
    """Where inputs and runs go."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.drills.run_drills import listed, run_drills

        if self.fuzz < 0:
            raise InputError(f"fuzz {self.fuzz}: expected a number of runs; change --fuzz")
        if self.list:
            print(listed())
            return 0
        return run_drills(self.names, self.work_dir, seed=self.seed, fuzz=self.fuzz, as_json=self.json)


@dataclass(frozen=True)
class ReferencePointsCommand:
    """Write the convergence points of runs in the format of the official reference points: of finished runs, or of
    rehearsals made for it, each with a seed of its own. Review judges rehearsals by the committed file,
    benchmark/results/rehearsal_points.json.

    Example: python -m benchmark reference-points --seeds 8 --output points.json
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Run folders."""
    seeds: int = 0
    """Run the rehearsal so many times in --work-dir first."""
    work_dir: Path = Path("runs/reference_points")
    """Where these runs go; those already finished there count."""
    output: Path = Path("points.json")
    """File to write."""

    def run(self) -> int:
        from benchmark.rehearsal.reference_points import rehearse_seeds, write_reference_points

        runs = [*self.runs, *rehearse_seeds(self.seeds, self.work_dir)]
        print(f"{self.output}: {write_reference_points(runs, self.output)}")
        return 0


@dataclass(frozen=True)
class DescribeSystemCommand:
    """Read this machine into an MLPerf system description. Fields that it cannot tell are marked and listed; fill
    them in by hand: package and review refuse a description with marks.

    Example: python -m benchmark describe-system --output dgxh100_n64.json
    """

    output: Path | None = None
    """File to write; printed unless given."""

    def run(self) -> int:
        from benchmark.submission.describe_system import describe_system

        print(describe_system(self.output))
        return 0


@dataclass(frozen=True)
class PackageCommand:
    """Make a submission of three results: system description, logs, code, scripts, manifests. What review would
    refuse is refused, in a line each, and nothing is left behind.

    Example: python -m benchmark package --org ACME --system-json dgxh100_n64.json --results runs/0 runs/1 runs/2
    --output ACME
    """

    org: str
    """The submitting organisation."""
    system_json: Path
    """Description of the system, as describe-system begins it; its file name names the system."""
    results: tuple[Path, ...]
    """Three result files, or folders of runs."""
    output: Path
    """Folder to make."""
    ruleset: str = NEWEST_RULESET
    """Official ruleset: 3.0.0, 3.1.0, 4.0.0 or 4.1.0."""

    def run(self) -> int:
        from benchmark.submission.package import make_package

        print(make_package(self.org, self.system_json, self.results, self.output, ruleset=self.ruleset))
        return 0


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


@dataclass(frozen=True)
class ReportCommand:
    """Write one self-contained HTML page about runs: verdict and score, accuracy, training, speed, where the time went,
    origin, every finding of review. Several runs overlay. Exit status 0 if it is written, whatever the verdict.

    Example: python -m benchmark report runs/rehearsal/run_0 --output report.html
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs or of results, or result files, published ones too."""
    output: Path
    """HTML file to write."""
    ruleset: str | None = None
    """Official ruleset to review by: 3.0.0, 3.1.0, 4.0.0 or 4.1.0; by the path, else the newest, unless given."""

    def run(self) -> int:
        from benchmark.report.write_report import write_report

        print(write_report(self.paths, self.output, ruleset=self.ruleset))
        return 0


def parse(arguments: Sequence[str]) -> Command:
    """The command that ``arguments`` name, with its options. Raises InputError for anything unknown."""
    name, options = arguments[0], arguments[1:]
    if name not in COMMANDS:
        raise InputError(f"unknown command {name!r}; there are {', '.join(COMMANDS)}")
    command: Any = COMMANDS[name][0]
    if command is PreflightCommand and (not options or options[0].startswith("--json")):
        command = MachinePreflightCommand
    if command is PlanCommand and "--backtest" in options and options[0].startswith("--"):
        command = BacktestCommand
    prog = f"python -m benchmark {name}"
    if "config" in {field.name for field in dataclasses.fields(command)}:
        made: Command = parse_run(prog, options, command, on_devices=_on_devices(command, options))
    else:
        made = one_line_usage_error(lambda: tyro.cli(command, args=list(options), prog=prog))
    return made


def _on_devices(command: type[Command], options: Sequence[str]) -> bool:
    """Whether the model has to be dealt out as the options say: a search looks for how."""
    return command is not ScheduleCommand and not (command is PlanCommand and "--search" in options)


COMMANDS: Mapping[str, tuple[type[Command], str]] = {
    "train": (
        TrainCommand,
        "Train a benchmark to its quality target, timed and logged. One process per device: torchrun or srun.",
    ),
    "next-attempt": (
        NextAttemptCommand,
        "What to do after an attempt at a run has ended; for launchers such as run_gpt3.sh.",
    ),
    "evaluate": (
        EvaluateCommand,
        "Log perplexity of a checkpoint, converted or a run's own, on the whole validation set.",
    ),
    "schedule": (ScheduleCommand, "Every step of a run: consumed samples, learning rate, whether it evaluates."),
    "plan": (
        PlanCommand,
        "Memory, messages, step time and time to train of a run, without its devices; the fastest layout.",
    ),
    "slice": (SliceCommand, "A few layers at the true width on this machine's GPUs: step, MFU, memory, profile."),
    "preflight": (
        PreflightCommand,
        "Whether machines and inputs will carry a run: one line for each check, with its mend.",
    ),
    "review": (ReviewCommand, "Whether results and packages would be accepted, and what their score is."),
    "rehearse": (
        RehearseCommand,
        "The whole benchmark at a small size on this machine, from corpus to reviewed result.",
    ),
    "drill": (DrillCommand, "Faults injected into the rehearsal, and a table of what came of each."),
    "reference-points": (
        ReferencePointsCommand,
        "Tokens to the target over several runs: mean, deviation, smallest accepted median, official file format.",
    ),
    "describe-system": (
        DescribeSystemCommand,
        "The MLPerf description of this machine, with a mark where it takes a person to know.",
    ),
    "package": (
        PackageCommand,
        "Three results, a system description and the code become a submission that review passes.",
    ),
    "goodput": (
        GoodputCommand,
        "Where the wall time of a run went, over all its attempts, and what interruptions cost.",
    ),
    "report": (ReportCommand, "One self-contained HTML page about runs."),
}
"""What each command is, and its line in the list of ``--help``."""


def main(arguments: Sequence[str]) -> int | None:
    """``python -m benchmark ARGUMENTS``; returns the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{__doc__}\n")
        for name, (_, summary) in COMMANDS.items():
            print(f"  {name:17} {summary}")
        return 0 if arguments else 2
    return parse(arguments).run()


def console() -> NoReturn:
    """``python -m benchmark``, and the script ``benchmark`` of an installation."""
    run_command(lambda: main(sys.argv[1:]))


if __name__ == "__main__":
    console()
