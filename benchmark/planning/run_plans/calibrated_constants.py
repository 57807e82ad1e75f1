"""Constants of an accelerator as a slice measured them on the device at hand (``calibration.json``), for a plan.

Only rates that the slice measured are replaced; the rest stays as it is in the table. One rate for all matrix products
is chosen so that the model's times of the measured shapes add up to the measured ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from benchmark.planning.step_model.machine_constants import Constant, Rates, names_in, rates, values_of
from benchmark.planning.step_model.operator_times import attention_s, matmul_s
from benchmark.results.printable import shortened
from stage.errors import InputError

SPREAD = 0.03
"""Relative range of a measured rate: from run to run, and from a slice to a whole step's temperature."""
MOST_APART = 20.0
"""A rate so many times the table's, or less than its inverse, is no measurement."""


class TimedMatmul(Protocol):
    """A product of 2 x tokens x inputs x outputs FLOPs, by its role in training."""

    @property
    def role(self) -> str: ...

    @property
    def tokens(self) -> int: ...

    @property
    def inputs(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def seconds(self) -> float: ...


class TimedAttention(Protocol):
    """Causal attention, a forward or a backward pass."""

    @property
    def role(self) -> str: ...

    @property
    def samples(self) -> int: ...

    @property
    def heads(self) -> int: ...

    @property
    def sequence(self) -> int: ...

    @property
    def head_size(self) -> int: ...

    @property
    def seconds(self) -> float: ...


class TimedPass(Protocol):
    """A pass over memory."""

    @property
    def bytes(self) -> int: ...

    @property
    def seconds(self) -> float: ...


class MeasuredDevice(Protocol):
    """What is read of a calibration (planning/run_plans/calibration.py); every sequence may be empty."""

    @property
    def accelerator(self) -> str: ...

    @property
    def matmuls(self) -> Sequence[TimedMatmul]: ...

    @property
    def attention(self) -> Sequence[TimedAttention]: ...

    @property
    def elementwise(self) -> Sequence[TimedPass]: ...


def calibrated_constants(constants: Mapping[str, Constant], measured: MeasuredDevice) -> dict[str, Constant]:
    """The table with the measured rates of the device's accelerator in place of its own.

    Raises InputError for an accelerator that the table does not have, and rates that no device of its kind has.
    """
    name = measured.accelerator
    if name not in names_in(constants, "accelerators"):
        known = ", ".join(names_in(constants, "accelerators"))
        raise InputError(f"calibration of {shortened(name, 60) or 'a device'}: there are constants of {known} only")
    table = rates(values_of(constants), name, "ours")
    factors = {
        "matmul_bf16": _ratio((_matmul(table, each), each.seconds) for each in measured.matmuls),
        "attention_forward": _ratio(_attention(table, measured, "forward")),
        "attention_backward": _ratio(_attention(table, measured, "backward")),
        "memory_tb_s": _ratio(
            (each.bytes / table.device.memory_tb_s / 1e12, each.seconds) for each in measured.elementwise
        ),
    }
    found = dict(constants)
    for key, factor in factors.items():
        if factor is None:
            continue
        if not 1 / MOST_APART < factor < MOST_APART:
            raise InputError(f"calibration of {name}: {key} {factor:.3g} times the table's; measure again")
        old = constants[f"accelerators.{name}.{key}"]
        value = old.value * factor
        found[f"accelerators.{name}.{key}"] = replace(
            old,
            value=value,
            low=value * (1 - SPREAD),
            high=value * (1 + SPREAD),
            source="calibration.json",
            backed=False,
        )
    return found


def _ratio(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Modelled over measured seconds, all together; None without any."""
    modelled, taken = 0.0, 0.0
    for model_s, measured_s in pairs:
        modelled, taken = modelled + model_s, taken + measured_s
    return modelled / taken if taken > 0 else None


def _matmul(table: Rates, timed: TimedMatmul) -> float:
    sizes = {
        "forward": (timed.tokens, timed.outputs, timed.inputs),
        "input gradient": (timed.tokens, timed.inputs, timed.outputs),
        "weight gradient": (timed.inputs, timed.outputs, timed.tokens),
    }[timed.role]
    extra = 8.0 * timed.inputs * timed.outputs if timed.role == "weight gradient" else 0.0
    return matmul_s(table.device, table.common, sizes, fp8=False, extra=extra)


def _attention(table: Rates, measured: MeasuredDevice, role: str) -> Iterable[tuple[float, float]]:
    for timed in measured.attention:
        if timed.role == role:
            forward_s, backward_s = attention_s(
                table.device,
                table.common,
                sequences=timed.samples,
                heads=timed.heads,
                seq=timed.sequence,
                head=timed.head_size,
                kind="cudnn",
            )
            yield (forward_s if role == "forward" else backward_s), timed.seconds
