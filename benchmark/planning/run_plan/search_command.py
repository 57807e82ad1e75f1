"""``plan --search``: search the layouts of a system, and print them. Nothing here needs PyTorch."""

import json
import sys
from dataclasses import asdict

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.system_config import System
from benchmark.planning.run_plan.calibration import Calibration, planned_rates
from benchmark.planning.run_plan.plan_options import PlannedRun, PlanOptions, require_possible
from benchmark.planning.run_plan.search_layouts import (
    SearchResult,
    candidates,
    cannot_run,
    memory_of_device_gb,
    search_layouts,
)
from benchmark.planning.step_model.machine_constants import committed_constants
from benchmark.planning.step_model.workload import TIMED_FORMATS
from foundation.errors import InputError
from foundation.plain_text import folded, table_text


def print_search(
    run: PlannedRun, options: PlanOptions, *, as_json: bool, calibration: Calibration | None = None
) -> int:
    """Print a search of layouts. Raises InputError if no layout can run or the device is not known."""
    if run.precision not in TIMED_FORMATS:
        formats = " or ".join(TIMED_FORMATS)
        raise InputError(f"--search: no constants of products in {run.precision}; --precision may be {formats}")
    memory_of_device_gb(run.system)
    systems = candidates(run.system, run.benchmark.model.num_layers)
    if any(cannot_run(run, system) is None for system in systems):
        require_possible(run, options)
    rates = planned_rates(run.system, options, calibration)
    if rates is None:
        names = ", ".join(committed_constants().accelerators)
        raise InputError(f"--search: no constants of {run.system.accelerator}; --accelerator may be {names}")
    if sys.stderr.isatty():
        print("plan: simulating a step of each layout that fits …", file=sys.stderr)
    search = search_layouts(run, options, rates)
    print(json.dumps(asdict(search)) if as_json else format_search(search, run.benchmark, run.system))
    return 0


def format_search(result: SearchResult, benchmark: Benchmark, system: System) -> str:
    """Return the best layouts, the reasons why others were dropped, and the gains of ideas."""
    devices = f"{system.num_devices} {system.accelerator}"
    lines = [
        f"{benchmark.name} on {devices}, batch {benchmark.global_batch_size}; {result.examined} layouts",
        "",
    ]
    rows = [
        (
            f"{layout.run_s / 60:.1f} min",
            f"{layout.step_s:.3f} s",
            f"{layout.parts.bubble / layout.step_s:.1%}",
            f"{layout.memory_gb:.0f} GB",
            f"{layout.options} (DP {layout.data_parallel})",
        )
        for layout in result.best
    ]
    lines.append(table_text(("run", "step", "bubble", "memory", "layout"), rows, right=range(4)))
    lines += ["", "dropped:", *(folded(f"{count:>7}  {reason}") for reason, count in result.fallen_out.items())]
    lines += ["", "gain of an idea for the first layout, by the step model:"]
    lines += [f"{idea.gain:>7.1%} --what-if {idea.what_if}" for idea in result.ideas]
    return "\n".join(lines)
