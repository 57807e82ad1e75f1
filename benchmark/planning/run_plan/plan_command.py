"""Print the result of ``plan``: a plan or a search."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.systems import LAYOUTS, SYSTEMS, system_called
from benchmark.planning.dry_run.dry_run import dry_run
from benchmark.planning.run_plan.calibration import Calibration, calibrated_constants, read_calibration
from benchmark.planning.run_plan.plan_options import PlannedRun, PlanOptions, require_possible
from benchmark.planning.run_plan.plan_text import format_run_plan, format_search
from benchmark.planning.run_plan.run_plan import make_plan
from benchmark.planning.run_plan.search_layouts import candidates, cannot_run, memory_of_device_gb, search_layouts
from benchmark.planning.step_model.machine_constants import Constant, committed_constants
from foundation.errors import CheckFailed, InputError


def print_plan(
    config: PlannedRun, options: PlanOptions, *, as_json: bool, verbose: bool = False, calibration: Path | None = None
) -> int:
    """Print a plan; ``calibration`` is a file with a slice's rates that replace the table's constants.

    Raises CheckFailed, after printing, if the run does not fit in memory, and InputError for bad options.
    """
    require_possible(config, options)  # complains before the seconds of the dry run
    constants = _constants(config, calibration)
    examined = None
    if options.stack == "ours":
        _progress("running a step of each kind of rank on tensors without memory …")
        examined = dry_run(config)
    made, system = make_plan(config, examined, options, constants), config.system
    if as_json:
        planned_for = {  # tells whether a run is the planned one: report --plan reads it
            "benchmark": config.benchmark.name,
            "system": system.name,
            "accelerator": system.accelerator or system.device,
            "devices": system.num_devices,
            "global_batch_size": config.benchmark.global_batch_size,
            "precision": "fp32" if config.precision == "fp32" else config.number,
        }
        print(json.dumps({**asdict(made), "planned_for": planned_for}))
    else:
        print(format_run_plan(made, config, verbose=verbose))
    if made.complaint is not None:
        raise CheckFailed(made.complaint)
    return 0


def print_search(config: PlannedRun, options: PlanOptions, *, as_json: bool, calibration: Path | None = None) -> int:
    """Print a search of layouts. Raises InputError if no layout can run or the device is not known."""
    if config.precision == "fp32":
        raise InputError("--search: there are no constants of matrix products in FP32; --precision may be bf16 or fp8")
    memory_of_device_gb(config)
    runnable = next((other for other in candidates(config) if cannot_run(other) is None), None)
    if runnable is not None:
        require_possible(runnable, options)
    _progress("simulating a step of each layout that fits …")
    found = search_layouts(config, options, _constants(config, calibration))
    print(json.dumps(asdict(found)) if as_json else format_search(found, config))
    return 0


def _progress(words: str) -> None:
    if sys.stderr.isatty():
        print(f"plan: {words}", file=sys.stderr)


def whole_system(calibration: Calibration) -> str | None:
    """Return one line with the speed of the first known system of that accelerator if its devices ran like the slice's.
    Return None if there is no such system, or if the slice did not have the true width."""
    laid_out = LAYOUTS.get(calibration.benchmark, SYSTEMS)
    names = [
        name for name in laid_out if calibration.accelerator and SYSTEMS[name].accelerator == calibration.accelerator
    ]
    if not names or not calibration.true_width or calibration.benchmark not in BENCHMARKS:
        return None
    system = system_called(names[0], calibration.benchmark)
    config = PlannedRun(benchmark=BENCHMARKS[calibration.benchmark], system=system)
    made = make_plan(config, None, PlanOptions(), calibrated_constants(committed_constants(), calibration))
    if made.step_s is None or made.mfu is None:
        return None
    low, high = made.intervals["step_s"]
    return (
        f"{names[0]} would take {made.step_s:.2f} s a step ({low:.2f} to {high:.2f}), MFU {made.mfu:.1%}, with these "
        f"rates: plan {calibration.benchmark} --system {names[0]} --calibration FILE"
    )


def _constants(config: PlannedRun, calibration: Path | None) -> Mapping[str, Constant]:
    if calibration is None:
        return committed_constants()
    measured = read_calibration(calibration)
    if measured.accelerator != config.system.accelerator:
        raise InputError(
            f"{calibration}: measured on {measured.accelerator or measured.device}, but system {config.system.name} "
            f"has {config.system.accelerator or 'CPUs'}; choose another --system, or omit --calibration"
        )
    return calibrated_constants(committed_constants(), measured)
