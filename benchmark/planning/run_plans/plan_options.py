"""What a plan can be asked besides the run's configuration, and what of it cannot be."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.run_config import RunConfig
from benchmark.planning.step_model.machine_constants import Constant, committed_constants, names_in
from benchmark.planning.step_model.simulated_step import stack_of
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.what_if import apply_what_if
from benchmark.planning.step_model.workload import Number, Workload, workload_of
from model.flops import train_flops_per_token
from stage.errors import InputError

NETWORK_GBIT_S = (0.1, 100_000.0)
MOST_WATTS, MOST_DOLLARS_PER_HOUR = 100_000.0, 100_000.0
"""No device has or takes more; what is beyond was meant for the whole machine, or is a slip."""

MOST_WIDTH = 1 << 24
"""Of an MLP."""


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
    kv_heads: int | None = None
    """Of another model than GPT-3, which has as many as of queries."""
    ffn_hidden_size: int | None = None
    """Likewise; GPT-3's is four times the hidden size."""
    gated_mlp: bool = False
    """SwiGLU or GEGLU: three projections, tables of their own for input and output."""

    @property
    def other_model(self) -> bool:
        """Whether the model is not one that this repository trains."""
        return self.kv_heads is not None or self.ffn_hidden_size is not None or self.gated_mlp


def require_possible(config: RunConfig, options: PlanOptions) -> None:
    """Raise InputError for what cannot be planned, before anything long begins."""
    if options.stack not in STACKS:
        raise InputError(f"stack {options.stack}: unknown; there are {', '.join(STACKS)}; change --stack")
    if options.network_gbit_s is not None and not NETWORK_GBIT_S[0] <= options.network_gbit_s <= NETWORK_GBIT_S[1]:
        low, high = NETWORK_GBIT_S
        raise InputError(
            f"--network-gbit-s {options.network_gbit_s:g}: expected {low:g} to {high:,.0f}, of each device's card"
        )
    for option, given, most in (
        ("--watts", options.watts, MOST_WATTS),
        ("--dollars-per-hour", options.dollars_per_hour, MOST_DOLLARS_PER_HOUR),
    ):
        if given is not None and not 0 < given <= most:
            raise InputError(
                f"{option} {given:g}: expected more than 0 and at most {most:,.0f}, of one device with its share of "
                "the machine"
            )
    _require_model(config, options)
    simulated = given_tflops(config, options) is None
    if options.what_if and not simulated:
        raise InputError("--what-if changes the simulated step: leave out --mfu and --tflops, or --what-if")
    _require_machine(config, options, simulated=simulated)
    work, constants = planned_workload(config, options), committed_constants()
    stack_of(work)
    if options.precision == "fp8":
        _require_fp8(config.system.accelerator, constants)
    if config.system.accelerator in names_in(constants, "accelerators"):
        apply_what_if(options.what_if, work, constants)
    elif options.what_if:
        known = ", ".join(names_in(constants, "accelerators"))
        raise InputError(
            f"--what-if: there are no constants of {config.system.accelerator or 'a CPU'}, only of {known}"
        )


def _require_machine(config: RunConfig, options: PlanOptions, *, simulated: bool) -> None:
    """Of another stack than ours only the simulation knows anything; ours can be counted on any device."""
    system = config.system
    if system.device == "cpu" and system.accelerator:
        raise InputError(
            f"--device cpu: system {system.name} has {system.accelerator}; leave --device out, or choose cpu_p2"
        )
    if options.stack == "ours" or not simulated:
        return
    if config.precision == "fp32":
        having = " or ".join(STACKS[options.stack].precisions)
        raise InputError(f"--precision fp32: stack {options.stack} has {having}; choose --precision, or give --tflops")
    known = [name for name in names_in(committed_constants(), "accelerators") if name in ACCELERATORS]
    if system.accelerator not in known:
        raise InputError(
            f"stack {options.stack}: there are no constants of {system.accelerator or 'devices without a name'}; "
            f"--accelerator may be {', '.join(known)}, or give --tflops"
        )


def _require_model(config: RunConfig, options: PlanOptions) -> None:
    if not options.other_model:
        return
    model, tensor = config.benchmark.model, config.system.tensor_parallel
    if options.stack == "ours":
        raise InputError(
            "--kv-heads, --ffn-hidden-size and --gated-mlp: stack ours has GPT-3's blocks only; choose another "
            f"--stack, one of {', '.join(name for name in STACKS if name != 'ours')}"
        )
    heads = model.num_attention_heads
    if options.kv_heads is not None and (options.kv_heads < 1 or heads % options.kv_heads):
        raise InputError(f"--kv-heads {options.kv_heads}: expected a divisor of the {heads} heads of queries")
    if options.kv_heads is not None and options.kv_heads % tensor:
        raise InputError(f"--kv-heads {options.kv_heads}: expected a multiple of tensor parallel, {tensor}")
    width = options.ffn_hidden_size
    if width is not None and not (1 <= width <= MOST_WIDTH and width % tensor == 0):
        raise InputError(
            f"--ffn-hidden-size {width}: expected a multiple of tensor parallel, {tensor}, at most {MOST_WIDTH:,}"
        )


def _require_fp8(accelerator: str, constants: Mapping[str, Constant]) -> None:
    """In the table the rate in FP8 of what has none is BF16's."""
    having = [
        name
        for name in names_in(constants, "accelerators")
        if constants[f"accelerators.{name}.matmul_fp8"].value > constants[f"accelerators.{name}.matmul_bf16"].value
    ]
    if accelerator in names_in(constants, "accelerators") and accelerator not in having:
        known = ", ".join(name for name in having if name in ACCELERATORS)
        raise InputError(f"--precision fp8: {accelerator} has no products in FP8; --accelerator may be {known}")


def flops_per_token(config: RunConfig, options: PlanOptions) -> float:
    """Forward and backward, of the model that is planned."""
    if options.other_model:
        return planned_workload(config, options).model.flops_per_token
    return train_flops_per_token(config.benchmark.model)


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
    work = workload_of(config, stack=options.stack, precision=options.precision, network_gbit_s=options.network_gbit_s)
    model = dataclasses.replace(
        work.model,
        kv_heads=options.kv_heads or work.model.kv_heads,
        ffn_hidden=options.ffn_hidden_size or work.model.ffn_hidden,
        gated=options.gated_mlp,
        tied=work.model.tied and not options.gated_mlp,
    )
    return dataclasses.replace(work, model=model)
