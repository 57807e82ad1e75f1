"""What a plan can be asked besides the run's configuration, and what of it cannot be."""

import math
from dataclasses import dataclass

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.run_config import RunConfig
from benchmark.planning.step_model.machine_constants import committed_constants, names_in
from benchmark.planning.step_model.simulated_step import stack_of
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.what_if import apply_what_if
from benchmark.planning.step_model.workload import Number, Workload, workload_of
from stage.errors import InputError


@dataclass(frozen=True)
class PlanOptions:
    """What a plan can be asked besides the run's configuration."""

    stack: str = "ours"
    precision: Number = "bf16"
    network_gbit_s: float | None = None
    """Of a device's card to other nodes, each way; None: as usual for the accelerator."""
    mfu: float | None = None
    """Of the dense BF16 peak; replaces the simulated step, as ``tflops`` does."""
    tflops: float | None = None
    """Model TFLOP/s per device."""
    watts: float | None = None
    """Power of a device with its share of the machine."""
    dollars_per_hour: float | None = None
    """Price of a device with its share of the machine."""
    what_if: tuple[str, ...] = ()
    """Changes to machine or stack (step_model/what_if.py)."""


def require_possible(config: RunConfig, options: PlanOptions) -> None:
    """Raise InputError for what cannot be planned, before anything long begins."""
    if options.stack not in STACKS:
        raise InputError(f"stack {options.stack}: unknown; there are {', '.join(STACKS)}; change --stack")
    if options.network_gbit_s is not None and not 0 < options.network_gbit_s < math.inf:
        raise InputError(f"--network-gbit-s {options.network_gbit_s:g}: expected more than 0, such as 400")
    for option, given in (("--watts", options.watts), ("--dollars-per-hour", options.dollars_per_hour)):
        if given is not None and not 0 < given < math.inf:
            raise InputError(f"{option} {given:g}: expected more than 0, of one device with its share of the machine")
    given_tflops(config, options)
    work, constants = planned_workload(config, options), committed_constants()
    stack_of(work)
    if config.system.accelerator in names_in(constants, "accelerators"):
        apply_what_if(options.what_if, work, constants)
    elif options.what_if:
        known = ", ".join(names_in(constants, "accelerators"))
        raise InputError(
            f"--what-if: there are no constants of {config.system.accelerator or 'a CPU'}, only of {known}"
        )


def given_tflops(config: RunConfig, options: PlanOptions) -> tuple[float, str] | None:
    """Model TFLOP/s per device and where the figure is from, where ``mfu`` or ``tflops`` is given.

    Raises InputError for a speed that no device has, or an ``mfu`` where the peak is not known.
    """
    mfu, tflops, system, peak = options.mfu, options.tflops, config.system, config.system.peak_tflops
    if mfu is not None and tflops is not None:
        raise InputError("--mfu and --tflops: expected one of them")
    if tflops is not None:
        most_tflops = None if peak is None else peak * (2 if options.precision == "fp8" else 1)
        if not 0 < tflops < math.inf or (most_tflops is not None and tflops > most_tflops):
            most = f" and at most {system.accelerator}'s peak of {most_tflops:g}" if most_tflops is not None else ""
            raise InputError(f"--tflops {tflops:g}: expected more than 0{most}")
        return tflops, f"{tflops:g} TFLOP/s per device, as given"
    if mfu is None:
        return None
    if not 0 < mfu <= 1:
        raise InputError(f"--mfu {mfu:g}: expected a fraction, more than 0 and at most 1, such as 0.47")
    if peak is None:
        raise InputError(
            f"--mfu {mfu:g}: system {system.name} has no accelerator whose peak is known; give --tflops per device "
            f"or --accelerator, one of {', '.join(ACCELERATORS)}"
        )
    return mfu * peak, f"MFU {mfu:.1%} of {peak:g} TFLOP/s, as given"


def planned_workload(config: RunConfig, options: PlanOptions) -> Workload:
    """The step that a plan is about."""
    return workload_of(config, stack=options.stack, precision=options.precision, network_gbit_s=options.network_gbit_s)
