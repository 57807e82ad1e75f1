"""Run, evaluate and review the benchmark: python -m benchmark COMMAND --help"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

from benchmark.config.run_config import RunConfig
from benchmark.config.run_options import parse_run
from stage.cli import one_line_usage_error
from stage.errors import CheckFailed, InputError, run_command

Parsed = TypeVar("Parsed")


def train(arguments: Sequence[str]) -> int:
    """Train a benchmark to its quality target, timed and logged. One process per device: torchrun or srun.

    Example: torchrun --nproc-per-node 2 -m benchmark train rehearsal --train-data-path 0.5 A 0.5 B
    --valid-data-path 1.00 V --checkpoint ckpt4000_bf16 --run-dir runs/1

    Exit status: 0 target reached, 1 not reached, 2 bad input, 75 interrupted and saved: the same command continues.
    """
    options = parse_run("train", arguments, train.__doc__ or "", Train)
    return _dry_run(options) if options.dry_run else _train(options.run)


@dataclass(frozen=True)
class Train:
    """Options of ``train``."""

    run: tyro.conf.OmitArgPrefixes[RunConfig]
    dry_run: bool = False
    """Run a step of each kind of rank on tensors without memory, in this process; print what it would hold, compute and
    send. Exit status 1 when the devices' memory does not suffice."""
    json: bool = False
    """Print the dry run's result as JSON."""


def _train(config: RunConfig) -> int:
    from benchmark.training.engine.distributed import end_process
    from benchmark.training.train import EXIT_STATUS
    from benchmark.training.train import train as run

    end_process(EXIT_STATUS[run(config)])


def _dry_run(options: Train) -> int:
    from benchmark.planning.dry_run import dry_run, format_dry_run

    result = dry_run(options.run)
    print(json.dumps(asdict(result)) if options.json else format_dry_run(result, options.run))
    if result.complaint is not None:
        raise CheckFailed(result.complaint)
    return 0


@dataclass(frozen=True)
class WithJson:
    """Options of a command that reads a run's configuration."""

    run: tyro.conf.OmitArgPrefixes[RunConfig]
    json: bool = False
    """Print JSON."""


def evaluate(arguments: Sequence[str]) -> int:
    """Log perplexity of a checkpoint, converted or a run's own, on the whole validation set.

    Example: torchrun --nproc-per-node 2 -m benchmark evaluate rehearsal --checkpoint ckpt4000_bf16
    --valid-data-path 1.00 V
    """
    options = parse_run("evaluate", arguments, evaluate.__doc__ or "", WithJson)
    from benchmark.training.engine.distributed import end_process
    from benchmark.training.evaluate_checkpoint import evaluate_checkpoint

    quality = evaluate_checkpoint(options.run)
    if quality is not None and options.json:
        print(json.dumps(asdict(quality)))
    elif quality is not None:
        scored = f"{quality.scored_tokens:,} tokens scored"
        print(f"{quality.checkpoint}: log perplexity {quality.log_perplexity:.5f}, {scored}")
        if quality.expected is not None:
            print(f"expected of the initial checkpoint: {quality.expected}, {quality.distance_in_sd:+.1f} sd away")
    end_process(0)


def schedule(arguments: Sequence[str]) -> int:
    """Every step of a run: consumed samples, learning rate, whether it evaluates.

    Example: python -m benchmark schedule gpt3_175b --global-batch-size 2048 --json
    """
    options = parse_run("schedule", arguments, schedule.__doc__ or "", WithJson)
    from benchmark.config.schedule import scheduled_steps

    benchmark = options.run.benchmark
    steps = scheduled_steps(benchmark)
    if options.json:
        content = {
            "benchmark": benchmark.name,
            "global_batch_size": benchmark.global_batch_size,
            "start_iteration": benchmark.start_iteration,
            "start_samples": benchmark.start_samples,
            "eval_interval": benchmark.eval_interval,
            "steps": [asdict(step) for step in steps],
        }
        print(json.dumps(content))
        return 0
    print(f"{'iteration':>9} {'consumed samples':>16} {'trained tokens':>15} {'learning rate':>23}")
    for step in steps:
        row = f"{step.iteration:>9} {step.consumed_samples:>16} {step.trained_tokens:>15} {step.learning_rate:>23.16e}"
        print(row + ("  evaluates" if step.evaluates else ""))
    return 0


@dataclass(frozen=True)
class PlanOptions:
    """Options of ``plan``."""

    run: tyro.conf.OmitArgPrefixes[RunConfig]
    mfu: float | None = None
    """Model FLOP/s utilisation to count with, as a fraction of the dense BF16 peak; without it that of a published
    run of GPT-3 175B on this accelerator."""
    tflops: float | None = None
    """Model TFLOP/s per device to count with instead, such as a run of yours printed."""
    json: bool = False
    """Print JSON."""


def plan(arguments: Sequence[str]) -> int:
    """Memory, messages, step time and time to train of a run, without its devices.

    Example: python -m benchmark plan gpt3_175b --system h200_n8 --global-batch-size 2048 --mfu 0.42

    Exit status: 0 it fits the devices' memory, 1 it does not, 2 bad input. Takes a minute or two for 175B.
    """
    options = parse_run("plan", arguments, plan.__doc__ or "", PlanOptions)
    from benchmark.planning.dry_run import dry_run
    from benchmark.planning.run_plan import assumed_tflops, format_run_plan, make_plan

    assumed_tflops(options.run, options.mfu, options.tflops)  # complains before the minute of the dry run
    made = make_plan(options.run, dry_run(options.run), mfu=options.mfu, tflops=options.tflops)
    print(json.dumps(asdict(made)) if options.json else format_run_plan(made, options.run))
    if made.dry_run.complaint is not None:
        raise CheckFailed(made.dry_run.complaint)
    return 0


@dataclass(frozen=True)
class Machine:
    """Options of ``preflight`` where no benchmark is named."""

    json: bool = False
    """Print JSON."""


def preflight(arguments: Sequence[str]) -> int:
    """Whether machines and inputs will carry a run: one line for each check, with its mend.

    Alone it checks this machine; with BENCHMARK and a run's options also disks and inputs, as train would; started like
    train, one process per device, also that nodes, links and clocks agree.

    Example: srun python -m benchmark preflight gpt3_175b --run-dir LOG_DIR --checkpoint ckpt4000_bf16

    Exit status: 0 every check that applies ran and none failed, 1 one failed, 2 bad input.
    """
    from benchmark.training.engine.distributed import end_process, read_environment

    config, as_json = None, False
    if not arguments or arguments[0].startswith("--json"):
        as_json = _parse("preflight", Machine, arguments).json
    else:
        options = parse_run("preflight", arguments, preflight.__doc__ or "", WithJson)
        config, as_json = options.run, options.json
    from benchmark.preflight.run_checks import run_checks as run

    status = run(config, as_json=as_json)
    if read_environment().world_size > 1:
        end_process(status)
    return status


@dataclass(frozen=True)
class Review:
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


def review(arguments: Sequence[str]) -> int:
    """Whether results and packages would be accepted, and what their score is."""
    options = _parse("review", Review, arguments)
    from benchmark.review.review_command import run

    return run(options.paths, options.ruleset, options.json, options.compare)


def rehearse(arguments: Sequence[str]) -> int:
    """The whole benchmark at a small size on this machine, from corpus to reviewed result."""
    from benchmark.rehearsal.rehearse import Rehearsal

    return _parse("rehearse", Rehearsal, arguments).run()


@dataclass(frozen=True)
class ReferencePoints:
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


def reference_points(arguments: Sequence[str]) -> int:
    """Tokens to the target over several runs: mean, deviation, smallest accepted median, official file format."""
    options = _parse("reference-points", ReferencePoints, arguments)
    from benchmark.rehearsal.reference_points import rehearse_seeds, write_reference_points

    runs = [*options.runs, *rehearse_seeds(options.seeds, options.work_dir)]
    print(f"{options.output}: {write_reference_points(runs, options.output)}")
    return 0


def describe_system(arguments: Sequence[str]) -> int:
    """The MLPerf description of this machine, with a mark where it takes a person to know."""
    from benchmark.submission.describe_system import DescribeSystem

    return _parse("describe-system", DescribeSystem, arguments).run()


def package(arguments: Sequence[str]) -> int:
    """Three results, a system description and the code become a submission that review passes."""
    from benchmark.submission.package import Package

    return _parse("package", Package, arguments).run()


def report(arguments: Sequence[str]) -> int:
    """One self-contained HTML page about runs."""
    from benchmark.report.write_report import Report

    return _parse("report", Report, arguments).run()


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "train": train,
    "evaluate": evaluate,
    "schedule": schedule,
    "plan": plan,
    "preflight": preflight,
    "review": review,
    "rehearse": rehearse,
    "reference-points": reference_points,
    "describe-system": describe_system,
    "package": package,
    "report": report,
}


def _parse(command: str, options: type[Parsed], arguments: Sequence[str]) -> Parsed:
    return one_line_usage_error(lambda: tyro.cli(options, args=list(arguments), prog=f"python -m benchmark {command}"))


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{__doc__}\n")
        for name, command in COMMANDS.items():
            print(f"  {name:17} {(command.__doc__ or '').splitlines()[0]}")
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        raise InputError(f"unknown command {arguments[0]!r}; there are {', '.join(COMMANDS)}")
    return COMMANDS[arguments[0]](arguments[1:])


if __name__ == "__main__":
    run_command(lambda: main(sys.argv[1:]))
