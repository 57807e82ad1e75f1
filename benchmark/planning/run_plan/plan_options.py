"""Options of a plan besides the run's configuration, and the checks that refuse impossible plans."""

from dataclasses import dataclass
from typing import Literal, get_args

from benchmark.config.run_config import RunConfig
from benchmark.planning.step_model.machine_constants import committed_constants, names_in
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.what_if import apply_what_if
from benchmark.planning.step_model.workload import Number, Workload, workload_of
from foundation.errors import InputError

StackName = Literal["ours", "megatron", "nemo", "torchtitan"]
assert get_args(StackName) == tuple(STACKS)
NUMBERS = get_args(Number)
NETWORK_GBIT_S = (0.1, 100_000.0)


@dataclass(frozen=True)
class PlannedRun(RunConfig):
    """A run that may use other code than ours, with its precisions."""

    precision: Literal["bf16", "fp32", "fp8"] = "bf16"  # type: ignore[assignment]
    """Precision of the computation; fp8 for stacks that have it."""

    @property
    def number(self) -> Number:
        """Number format of the linear layers' inputs; FP32 has no constants."""
        return "fp8" if self.precision == "fp8" else "bf16"


@dataclass(frozen=True)
class PlanOptions:
    """Options of a plan besides the run's configuration."""

    stack: StackName = "ours"
    """Code whose step is planned: this repository's, or one described in benchmark/planning/step_model/stacks.py."""
    what_if: tuple[str, ...] = ()
    """Changes of machine or code: nvlink=2x network=2x matmul=1.1x tp-overlap=off jitter=off ..."""
    network_gbit_s: float | None = None
    """Gbit/s of each device's card to other nodes, one way; the accelerator's usual rate unless given."""


def planned_workload(config: PlannedRun, options: PlanOptions) -> Workload:
    """Return the step that a plan is about."""
    return workload_of(config, stack=options.stack, precision=config.number, network_gbit_s=options.network_gbit_s)


def require_possible(config: PlannedRun, options: PlanOptions) -> None:
    """Raise InputError for options that cannot be planned, before anything long begins."""
    (low, high), gbit_s = NETWORK_GBIT_S, options.network_gbit_s
    if gbit_s is not None and not low <= gbit_s <= high:
        raise InputError(f"--network-gbit-s {gbit_s:g}: expected {low:g} to {high:,.0f}, of each device's card")
    work, constants = planned_workload(config, options), committed_constants()
    accelerator, known = config.system.accelerator, names_in(constants, "accelerators")
    if config.system.device == "cpu" and accelerator:
        raise InputError(
            f"--device cpu: system {config.system.name} has {accelerator}; omit --device, or choose cpu_p2"
        )
    if config.precision == "fp32" and options.stack != "ours":
        having = " or ".join(STACKS[options.stack].precisions)
        raise InputError(f"--precision fp32: stack {options.stack} has {having}; choose --precision")
    if accelerator not in known and (options.stack != "ours" or options.what_if):
        raise InputError(
            f"--stack {options.stack}, --what-if: there are no constants for {accelerator or 'a CPU'}; --accelerator "
            f"may be {', '.join(known)}"
        )
    if work.precision not in work.code.precisions:
        having = ", ".join(name for name, each in STACKS.items() if work.precision in each.precisions)
        raise InputError(
            f"stack {options.stack} has no {work.precision}, only {', '.join(work.code.precisions)}; stacks with "
            f"{work.precision}: {having}; change --precision or --stack"
        )
    if config.number == "fp8" and accelerator in known:  # in the table the rate in FP8 of what has none is BF16's
        rates = {name: [constants[f"accelerators.{name}.matmul_{kind}"].value for kind in NUMBERS] for name in known}
        having = ", ".join(name for name, (bf16, fp8) in rates.items() if fp8 > bf16)
        if accelerator not in having.split(", "):
            raise InputError(f"--precision fp8: {accelerator} has no products in FP8; --accelerator may be {having}")
    if accelerator in known:
        apply_what_if(options.what_if, work, constants)
