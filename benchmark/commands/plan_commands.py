"""Commands before a run: plan, slice, preflight."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.run_config import RunConfig
from benchmark.planning.run_plan.plan_options import PlannedRun, PlanOptions, require_possible
from benchmark.planning.slice.gpu_presence import require_gpu
from benchmark.planning.slice.slice_config import ON_CPU, SliceOptions, slice_config
from benchmark.run_record.small_files import folder_problem
from foundation.cli import choose
from foundation.errors import InputError
from foundation.options.option_marks import Unprefixed
from foundation.plain_text import folded


@dataclass(frozen=True)
class PlanCommand:
    """Predict the score of a machine, with its bounds and reasons; with --search, find the fastest layout. The reasons
    are the step in parts, memory, messages, failures, costs. None of the devices is needed.

    Example: python -m benchmark plan gpt3_175b --system h200_n8 --global-batch-size 2048 --json

    Exit status: 0 the run fits the devices' memory, 1 it does not, 2 bad input. The command takes some ten seconds for
    175B on two cores.
    """

    config: Unprefixed[PlannedRun]
    options: Unprefixed[PlanOptions] = field(default_factory=PlanOptions)
    search: bool = False
    """Rank all layouts of the system's devices that fit in memory by their time to the target."""
    calibration: Path | None = None
    """calibration.json of a slice on such devices, whose rates replace the published ones."""
    verbose: bool = False
    """Also print memory and messages by rank, and the reasons for every figure."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        if not self.search:
            require_possible(self.config, self.options)  # before the seconds that PyTorch takes to import
        name, system = self.config.benchmark.mlperf_name, self.config.system
        measured = None
        if self.calibration is not None:
            from benchmark.planning.run_plan.calibration import calibration_of

            measured = calibration_of(system, self.calibration)
        if self.search:
            from benchmark.planning.run_plan.search_command import print_search

            return print_search(self.config, self.options, as_json=self.json, calibration=measured)
        from benchmark.judging.results.published_scores import published_scores
        from benchmark.planning.run_plan.plan_command import print_plan

        published: list[str] = []
        if not self.json:
            published = published_scores(name, system.accelerator, system.num_devices, self.config.precision)
        return print_plan(
            self.config,
            self.options,
            as_json=self.json,
            verbose=self.verbose,
            calibration=measured,
            published=published,
        )


@dataclass(frozen=True)
class SliceCommand:
    """Train a few layers of a benchmark at their true width on this machine's GPUs, with the code of train. The command
    measures step time, MFU, memory and the use of time, and writes calibration.json, from which plan computes the whole
    system's step. Run it first on any GPU; it takes less than two minutes.

    Example: python -m benchmark slice gpt3_175b --layers 2 --json

    Exit status: 0 measured, 1 a process failed (out of memory: the line says which --layers fits; measurements of steps
    that had run are printed and written all the same), 2 bad input.
    """

    options: Unprefixed[SliceOptions]
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        options = self.options  # refused before the seconds that PyTorch takes to import
        require_gpu(options.device, ON_CPU)
        slice_config(options, options.layers or options.least_layers, "")
        if reason := folder_problem(options.output):
            raise InputError(f"--output {options.output}: {reason}")
        from benchmark.planning.run_plan.plan_command import whole_system
        from benchmark.planning.slice.run_slice import run_slice
        from benchmark.planning.slice.slice_result import slice_lines

        result, calibration = run_slice(self.options)
        if not self.json:
            print(folded("\n".join(slice_lines(result, calibration))), flush=True)
        plan_lines, problem = None, None
        try:
            plan_lines = whole_system(calibration) if calibration is not None else None
        except InputError as error:  # rates that no such device can have; the measurements are printed all the same
            problem = f"no plan: {error}"
        if self.json:
            print(json.dumps({**result, "whole_system": plan_lines or problem}))
        elif plan_lines or problem:
            print(plan_lines or problem)
        return int(bool(result["problems"]) or problem is not None)


@dataclass(frozen=True)
class PreflightCommand:
    """Check whether machines and inputs are fit for a run; with --first-contact, test everything that needs a GPU.

    One line for each check has its mend. Without a benchmark the command checks this machine; with BENCHMARK and a
    run's options also disks and inputs, as train would; started like train, one process per device, also that nodes,
    links and clocks agree. For the other kind see preflight --first-contact --help.

    Example: srun python -m benchmark preflight gpt3_175b --run-dir LOG_DIR --checkpoint ckpt4000_bf16

    Exit status: 0 every check that applies ran and none failed, 1 one failed, 2 bad input.
    """

    config: Unprefixed[RunConfig | None] = None
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.planning.preflight.run_checks import run_checks
        from benchmark.training.engine.distributed import end_process
        from benchmark.training.engine.rank_environment import read_environment

        status = run_checks(self.config, as_json=self.json)
        if read_environment().world_size > 1:
            end_process(status)
        return status


@dataclass(frozen=True)
class FirstContactCommand:
    """Test everything that needs a GPU, in half an hour of one: each kernel by itself and a small training against the
    CPU, steps of the benchmark's layers, rates, memory, profiles, preflight. If a part fails, the others still run; the
    result file is written anew after each part.

    Example: python -m benchmark preflight --first-contact --output first_contact

    Exit status: 0 everything that a run needs works, 1 something failed, 2 bad input, such as no GPU.
    """

    first_contact: bool = False
    """Run all these tests, rather than check this machine alone."""
    output: Path = Path("runs/first_contact")
    """Folder for contact.json, and a log and the results of each part."""
    benchmark: str = "gpt3_175b"
    """Benchmark whose layers the slices run."""
    minutes: float = 30.0
    """Minutes to spend; parts that do not fit are left out."""
    device: Literal["cuda", "cpu"] = "cuda"
    """cpu tests only that the command itself runs: a few features, and a small slice."""
    json: bool = False
    """Also print contact.json at the end."""

    def run(self) -> int:
        require_gpu(self.device, "--device cpu")  # before the seconds that PyTorch takes to import
        if not 0 < self.minutes <= 1440:
            raise InputError(f"minutes {self.minutes:g}: expected more than 0, at most 1,440; change --minutes")
        choose(self.benchmark, BENCHMARKS, "benchmark")
        if problem := folder_problem(self.output):
            raise InputError(f"--output {self.output}: {problem}")
        from benchmark.planning.first_contact.first_contact import RESULT, first_contact

        contact = first_contact(self.device, self.output, self.minutes, self.benchmark)
        if self.json:
            print(json.dumps({"passed": contact.passed, **asdict(contact)}))
        else:
            print(f"{'all works' if contact.passed else 'NOT all works'}: {self.output / RESULT}")
        return int(not contact.passed)
