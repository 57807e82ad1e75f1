"""Commands about runs that were not made yet: plan, slice."""

import dataclasses
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from benchmark.config.run_config import RunConfig
from benchmark.slice_run.slice_config import SliceOptions
from stage.errors import InputError


@dataclass(frozen=True)
class PlannedRun(RunConfig):
    """A run that may be another code's, with its precisions."""

    precision: Literal["bf16", "fp32", "fp8"] = "bf16"  # type: ignore[assignment]
    """Of the computation; fp8 for stacks that have it."""


@dataclass(frozen=True)
class PlanCommand:
    """Memory, messages, step time in parts and time to train of a run, without its devices, each with its doubt.

    Example: python -m benchmark plan gpt3_175b --system h200_n8 --global-batch-size 2048 --json

    Exit status: 0 it fits the devices' memory, 1 it does not, 2 bad input. Takes half a minute for 175B on two cores,
    a search ten seconds.
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
    kv_heads: int | None = None
    """Heads of keys and values of another model than GPT-3, for other stacks than ours."""
    ffn_hidden_size: int | None = None
    """Likewise: width of the MLP; four times the hidden size unless given."""
    gated_mlp: bool = False
    """Likewise: SwiGLU or GEGLU, three projections."""
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
            if self != PlanCommand(config=self.config, backtest=True, json=self.json):
                raise InputError("--backtest: compares what is published, and takes no other option than --json")
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
            kv_heads=self.kv_heads,
            ffn_hidden_size=self.ffn_hidden_size,
            gated_mlp=self.gated_mlp,
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

    Exit status: 0 measured, 1 a process failed (out of memory: the line says which --layers fits; where the steps had
    run, what was measured is told and written all the same), 2 bad input.
    """

    options: Annotated[tyro.conf.OmitArgPrefixes[SliceOptions], tyro.conf.arg(name="slice")]
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.planning.plan_printing.plan_command import whole_system
        from benchmark.slice_run.run_slice import run_slice
        from benchmark.slice_run.slice_text import format_slice

        result, calibration = run_slice(self.options)
        if not self.json:
            print(format_slice(result, calibration), flush=True)
        planned, problem = None, None
        try:
            planned = whole_system(calibration) if calibration is not None else None
        except InputError as error:  # rates that no such device can have: what was measured is told all the same
            problem = f"no plan: {error}"
        if self.json:
            print(json.dumps({**asdict(result), "whole_system": planned or problem}))
        elif planned or problem:
            print(planned or problem)
        return int(bool(result.problems) or problem is not None)
