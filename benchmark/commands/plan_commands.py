"""Commands about runs that do not exist yet: plan, slice."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from benchmark.config.run_config import RunConfig
from benchmark.planning.run_plans.plan_options import PlanOptions
from benchmark.preflight.slice_run.slice_config import SliceOptions
from stage.errors import InputError


@dataclass(frozen=True)
class PlannedRun(RunConfig):
    """A run that may use other code than ours, with its precisions."""

    precision: Literal["bf16", "fp32", "fp8"] = "bf16"  # type: ignore[assignment]
    """Precision of the computation; fp8 for stacks that have it."""


@dataclass(frozen=True)
class PlanCommand:
    """Predict the score of a machine, with its bounds and its reasons: the step in parts, memory, messages, failures,
    costs. None of the devices is needed.

    Example: python -m benchmark plan gpt3_175b --system h200_n8 --global-batch-size 2048 --json

    Exit status: 0 the run fits the devices' memory, 1 it does not, 2 bad input. The command takes some ten seconds for
    175B on two cores.
    """

    config: Annotated[tyro.conf.OmitArgPrefixes[PlannedRun], tyro.conf.arg(name="run")]
    options: Annotated[tyro.conf.OmitArgPrefixes[PlanOptions], tyro.conf.arg(name="plan")] = field(
        default_factory=PlanOptions
    )
    search: bool = False
    """Rank all layouts of the system's devices that fit in memory by their time to the target."""
    calibration: Path | None = None
    """calibration.json of a slice on such devices, whose rates replace the published ones."""
    verbose: bool = False
    """Also print memory and messages by rank, and the reasons for every figure."""
    json: bool = False
    """Print JSON."""

    def __post_init__(self) -> None:
        if not isinstance(self.config, PlannedRun):
            fields = {one.name: getattr(self.config, one.name) for one in dataclasses.fields(self.config)}
            object.__setattr__(self, "config", PlannedRun(**fields))

    def run(self) -> int:
        from benchmark.planning.run_plans.plan_command import print_plan, print_search

        precision = self.config.precision
        fields = {one.name: getattr(self.config, one.name) for one in dataclasses.fields(RunConfig)}
        config = RunConfig(**{**fields, "precision": "fp32" if precision == "fp32" else "bf16"})
        options = dataclasses.replace(self.options, precision="fp8" if precision == "fp8" else "bf16")
        if self.search:
            return print_search(config, options, as_json=self.json, calibration=self.calibration)
        return print_plan(config, options, as_json=self.json, verbose=self.verbose, calibration=self.calibration)


@dataclass(frozen=True)
class SliceCommand:
    """Train a few layers of a benchmark at their true width on this machine's GPUs, with the code of train. The command
    measures step time, MFU, memory and the use of time, and writes calibration.json, from which plan computes the whole
    system's step. Run it first on any GPU; it takes less than two minutes.

    Example: python -m benchmark slice gpt3_175b --layers 2 --json

    Exit status: 0 measured, 1 a process failed (out of memory: the line says which --layers fits; measurements of steps
    that had run are printed and written all the same), 2 bad input.
    """

    options: Annotated[tyro.conf.OmitArgPrefixes[SliceOptions], tyro.conf.arg(name="slice")]
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.planning.run_plans.plan_command import whole_system
        from benchmark.preflight.slice_run.run_slice import run_slice
        from benchmark.preflight.slice_run.slice_result import slice_lines

        result, calibration = run_slice(self.options)
        if not self.json:
            print("\n".join(slice_lines(result, calibration)), flush=True)
        planned, problem = None, None
        try:
            planned = whole_system(calibration) if calibration is not None else None
        except InputError as error:  # rates that no such device can have: what was measured is told all the same
            problem = f"no plan: {error}"
        if self.json:
            print(json.dumps({**result, "whole_system": planned or problem}))
        elif planned or problem:
            print(planned or problem)
        return int(bool(result["problems"]) or problem is not None)
