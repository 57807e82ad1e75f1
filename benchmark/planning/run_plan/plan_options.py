"""Options of a plan besides the run's configuration, and the checks that refuse impossible plans."""

from dataclasses import dataclass
from typing import Literal, get_args

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.planning.step_model.machine_constants import committed_constants
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.what_if import require_what_ifs
from benchmark.planning.step_model.workload import Workload, workload_of
from foundation.errors import InputError

StackName = Literal["ours", "megatron", "nemo", "torchtitan"]
assert get_args(StackName) == tuple(STACKS)
NETWORK_GBIT_S = (0.1, 100_000.0)


@dataclass(frozen=True)
class PlannedRun(RunConfig):
    """A run that may use other code than ours."""

    def workload(self, options: "PlanOptions", system: System | None = None) -> Workload:
        """Return the step that a plan is about, on the run's system or on another one."""
        return workload_of(
            self.benchmark.model,
            self.benchmark.global_batch_size,
            self.system if system is None else system,
            stack=options.stack,
            precision=self.precision,
            network_gbit_s=options.network_gbit_s,
            bf16_layers=self.benchmark.bf16_layers,
        )


@dataclass(frozen=True)
class PlanOptions:
    """Options of a plan besides the run's configuration."""

    stack: StackName = "ours"
    """Code whose step is planned: this repository's, or one described in benchmark/planning/step_model/stacks.py."""
    what_if: tuple[str, ...] = ()
    """Changes of machine or code: nvlink=2x network=2x matmul=1.1x tp-overlap=off jitter=off ..."""
    network_gbit_s: float | None = None
    """Gbit/s of each device's card to other nodes, one way; the accelerator's usual rate by default."""

    def __post_init__(self) -> None:
        (low, high), gbit_s = NETWORK_GBIT_S, self.network_gbit_s
        if gbit_s is not None and not low <= gbit_s <= high:
            raise InputError(f"--network-gbit-s {gbit_s:g}: expected {low:g} to {high:,.0f}, of each device's card")
        require_what_ifs(self.what_if)
        if self.stack != "ours" and (word := "compiled-kernels=off") in self.what_if:
            raise InputError(f"--what-if {word}: only stack ours can do without them, not {self.stack}; leave it out")


def require_possible(run: PlannedRun, options: PlanOptions) -> None:
    """Raise InputError for options that cannot be planned, before anything long begins."""
    stack, number, devices = STACKS[options.stack], run.precision, committed_constants().accelerators
    accelerator = run.system.accelerator
    if run.system.device == "cpu" and accelerator:
        raise InputError(f"--device cpu: system {run.system.name} has {accelerator}; omit --device, or choose cpu_p2")
    if accelerator not in devices and (options.stack != "ours" or options.what_if):
        raise InputError(
            f"--stack {options.stack}, --what-if: there are no constants for {accelerator or 'a CPU'}; --accelerator "
            f"may be {', '.join(devices)}"
        )
    if number not in stack.precisions:
        stacks = ", ".join(name for name, code in STACKS.items() if number in code.precisions)
        raise InputError(
            f"--precision {number}: stack {options.stack} has {' or '.join(stack.precisions)}; stacks with {number}: "
            f"{stacks}; change --precision or --stack"
        )
