"""What a plan can be asked besides the run's configuration, and what of it cannot be."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import tyro

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.run_config import RunConfig
from benchmark.planning.step_model.machine_constants import Constant, committed_constants, names_in
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.what_if import apply_what_if
from benchmark.planning.step_model.workload import Number, Workload, workload_of
from stage.errors import InputError

StackName = Literal["ours", "megatron", "nemo", "torchtitan"]
assert get_args(StackName) == tuple(STACKS)
NETWORK_GBIT_S = (0.1, 100_000.0)
MOST_WATTS, MOST_DOLLARS_PER_HOUR = 100_000.0, 100_000.0
"""No device has or takes more; a larger figure was meant for the whole machine, or is a slip."""


@dataclass(frozen=True)
class PlanOptions:
    """What a plan can be asked besides the run's configuration."""

    stack: StackName = "ours"
    """Whose code runs: this repository's, or another that benchmark/planning/step_model/stacks.py describes."""
    precision: tyro.conf.Suppress[Number] = "bf16"
    """Of the computation; as an option it is the run's."""
    what_if: tuple[str, ...] = ()
    """Changes of machine or code: nvlink=2x network=2x matmul=1.1x tp-overlap=off jitter=off ..."""
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


def planned_workload(config: RunConfig, options: PlanOptions) -> Workload:
    """The step that a plan is about."""
    return workload_of(config, stack=options.stack, precision=options.precision, network_gbit_s=options.network_gbit_s)


def require_possible(config: RunConfig, options: PlanOptions) -> None:
    """Raise InputError for what cannot be planned, before anything long begins."""
    for option, given, least, most, whose in (
        ("--network-gbit-s", options.network_gbit_s, *NETWORK_GBIT_S, "each device's card"),
        ("--watts", options.watts, 1e-9, MOST_WATTS, "one device with its share of the machine"),
        ("--dollars-per-hour", options.dollars_per_hour, 1e-9, MOST_DOLLARS_PER_HOUR, "one device with its share"),
    ):
        if given is not None and not least <= given <= most:
            raise InputError(f"{option} {given:g}: expected {least:g} to {most:,.0f}, of {whose}")
    simulated = given_tflops(config, options) is None
    if options.what_if and not simulated:
        raise InputError("--what-if changes the simulated step: leave out --mfu and --tflops, or --what-if")
    work, constants = planned_workload(config, options), committed_constants()
    accelerator = config.system.accelerator
    known = names_in(constants, "accelerators")
    if config.system.device == "cpu" and accelerator:
        raise InputError(
            f"--device cpu: system {config.system.name} has {accelerator}; leave --device out, or choose cpu_p2"
        )
    if config.precision == "fp32" and options.stack != "ours" and simulated:
        having = " or ".join(STACKS[options.stack].precisions)
        raise InputError(f"--precision fp32: stack {options.stack} has {having}; choose --precision, or give --tflops")
    if accelerator not in known and simulated and (options.stack != "ours" or options.what_if):
        raise InputError(
            f"--stack {options.stack}, --what-if: there are no constants of {accelerator or 'a CPU'}; --accelerator "
            f"may be {', '.join(known)}, or give --tflops"
        )
    work.require_precision()
    if options.precision == "fp8":
        _require_fp8(accelerator, constants)
    if accelerator in known:
        apply_what_if(options.what_if, work, constants)


def _require_fp8(accelerator: str, constants: Mapping[str, Constant]) -> None:
    """In the table the rate in FP8 of what has none is BF16's."""
    known = names_in(constants, "accelerators")
    having = [
        name
        for name in known
        if constants[f"accelerators.{name}.matmul_fp8"].value > constants[f"accelerators.{name}.matmul_bf16"].value
    ]
    if accelerator in known and accelerator not in having:
        raise InputError(
            f"--precision fp8: {accelerator} has no products in FP8; --accelerator may be {', '.join(having)}"
        )


def given_tflops(config: RunConfig, options: PlanOptions) -> tuple[float, str] | None:
    """Model TFLOP/s per device and where the figure is from, where ``mfu`` or ``tflops`` is given.

    Raises InputError for a speed that no device has, or an ``mfu`` where the peak is not known.
    """
    mfu, tflops, system, peak = options.mfu, options.tflops, config.system, config.system.peak_tflops
    if mfu is not None and tflops is not None:
        raise InputError("--mfu and --tflops: expected one of them")
    if tflops is not None:
        most = math.inf if peak is None else peak * (2 if options.precision == "fp8" else 1)
        if not 0 < tflops <= most or math.isinf(tflops):
            peak_of = f" and at most {system.accelerator}'s peak of {most:g}" if peak is not None else ""
            raise InputError(f"--tflops {tflops:g}: expected more than 0{peak_of}")
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
