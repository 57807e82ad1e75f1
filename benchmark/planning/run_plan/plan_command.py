"""Print a plan."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.number_formats import Precision
from benchmark.config.systems import LAYOUTS, SYSTEMS, system_called
from benchmark.planning.dry_run.dry_run import dry_run
from benchmark.planning.run_plan.calibration import Calibration, planned_rates
from benchmark.planning.run_plan.plan_options import PlannedRun, PlanOptions, require_possible
from benchmark.planning.run_plan.plan_text import format_run_plan
from benchmark.planning.run_plan.run_plan import RunPlan, make_plan
from foundation.errors import CheckFailed


@dataclass(frozen=True)
class PlannedFor:
    """The run of a plan, by which ``report --plan`` recognises it."""

    benchmark: str
    system: str
    accelerator: str
    devices: int
    global_batch_size: int
    precision: Precision


@dataclass(frozen=True, kw_only=True)
class PrintedPlan(RunPlan):
    """The form of ``plan --json`` (docs/schemas/plan.json)."""

    planned_for: PlannedFor


def print_plan(
    run: PlannedRun,
    options: PlanOptions,
    *,
    as_json: bool,
    verbose: bool = False,
    calibration: Calibration | None = None,
    published: Sequence[str] = (),
) -> int:
    """Print a plan.

    ``calibration``: a slice's rates, which replace the table's constants. ``published``: the published scores
    on as many such devices, fastest first. Raises CheckFailed, after printing, if the run does not fit in memory, and
    InputError for bad options.
    """
    require_possible(run, options)  # complains before the seconds of the dry run
    benchmark, system = run.benchmark, run.system
    rates = planned_rates(system, options, calibration)
    examined = None
    if options.stack == "ours":
        if sys.stderr.isatty():
            print("plan: running a step of each kind of rank on tensors without memory …", file=sys.stderr)
        examined = dry_run(benchmark, system, run.precision)
    plan = make_plan(run, options, rates, examined)
    if as_json:
        planned_for = PlannedFor(
            benchmark=benchmark.name,
            system=system.name,
            accelerator=system.accelerator or system.device,
            devices=system.num_devices,
            global_batch_size=benchmark.global_batch_size,
            precision=run.precision,
        )
        print(json.dumps(asdict(PrintedPlan(**vars(plan), planned_for=planned_for))))
    else:
        print(format_run_plan(plan, benchmark, system, published, verbose=verbose))
    if plan.complaint is not None:
        raise CheckFailed(plan.complaint)
    return 0


def whole_system(calibration: Calibration) -> str | None:
    """Return one line with the speed of the first known system of that accelerator if its devices ran like the slice's.
    Return None if there is no such system, or if the slice did not have the true width."""
    systems = LAYOUTS.get(calibration.benchmark, SYSTEMS)
    names = [
        name for name in systems if calibration.accelerator and SYSTEMS[name].accelerator == calibration.accelerator
    ]
    if not names or not calibration.true_width or calibration.benchmark not in BENCHMARKS:
        return None
    system, options = system_called(names[0], calibration.benchmark), PlanOptions()
    run = PlannedRun(benchmark=BENCHMARKS[calibration.benchmark], system=system)
    plan = make_plan(run, options, planned_rates(system, options, calibration), None)
    if plan.step_s is None or plan.mfu is None:
        return None
    low, high = plan.intervals["step_s"]
    return (
        f"{names[0]} would take {plan.step_s:.2f} s a step ({low:.2f} to {high:.2f}), MFU {plan.mfu:.1%}, with these "
        f"rates: plan {calibration.benchmark} --system {names[0]} --calibration FILE"
    )
