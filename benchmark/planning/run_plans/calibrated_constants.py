"""Replace an accelerator's constants with the rates that a slice measured on the device at hand (``calibration.json``).

Only rates that the slice measured are replaced; the rest stays as it is in the table. One rate for all matrix products
is chosen so that the model's times of the measured shapes add up to the measured ones.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from benchmark.planning.run_plans.calibration import Calibration, MatmulTime
from benchmark.planning.step_model.machine_constants import Constant, Rates, names_in, rates, values_of
from benchmark.planning.step_model.memory_formula import ACCUMULATOR_BYTES
from benchmark.planning.step_model.operation_times import attention_s, matmul_s
from benchmark.results.printable import shortened
from stage.errors import InputError

SPREAD = 0.03
"""Relative range of a measured rate: rates differ between runs, and between a slice and a whole step's temperature."""
SHARE_SPREAD = 0.1
"""Range of a measured share of hidden messages, to both sides: one machine differs from many."""
MOST_SLOWDOWN = 0.35
"""Largest slowdown of products beside messages, measured on one H100 for any of its kernels (docs/notes/hopper.md)."""
MOST_APART = 20.0
"""Largest factor between a measured rate and the table's; beyond it the rate is refused as no measurement."""


def calibrated_constants(constants: Mapping[str, Constant], measured: Calibration) -> dict[str, Constant]:
    """Return the table with the measured rates of the device's accelerator in place of its own.

    Raises InputError for an accelerator that is not in the table, and for rates that no device of its kind reaches.
    """
    name = measured.accelerator
    if name not in names_in(constants, "accelerators"):
        known = ", ".join(names_in(constants, "accelerators"))
        raise InputError(f"calibration of {shortened(name, 60) or 'a device'}: constants exist only for {known}")
    table = rates(values_of(constants), name, "ours")
    memory_bytes_s = table.device.memory_tb_s * 1e12
    factors = {
        "matmul_bf16": _ratio((_matmul(table, each), each.seconds) for each in measured.matmuls),
        "attention_forward": _ratio(_attention(table, measured, "forward")),
        "attention_backward": _ratio(_attention(table, measured, "backward")),
        "memory_tb_s": _ratio((each.bytes / memory_bytes_s, each.seconds) for each in measured.elementwise),
    }
    found = dict(constants)
    for key, factor in factors.items():
        if factor is None:
            continue
        if not 1 / MOST_APART < factor < MOST_APART:
            raise InputError(f"calibration of {name}: {key} {factor:.3g} times the table's; measure again")
        old = constants[f"accelerators.{name}.{key}"]
        value = old.value * factor
        low, high = value * (1 - SPREAD), value * (1 + SPREAD)
        found[f"accelerators.{name}.{key}"] = replace(
            old, value=value, low=low, high=high, source="calibration.json", backed=False
        )
    return found | _hidden_share(constants, measured)


def _hidden_share(constants: Mapping[str, Constant], measured: Calibration) -> dict[str, Constant]:
    """Return the share of tensor-parallel messages that products hid; empty if the slice had no such messages."""
    step, messages_s = measured.step, measured.step.by_kind_s.get("communication", 0.0)
    if step.tensor_parallel == 1 or step.exposed_communication_s is None or messages_s <= 0:
        return {}
    share = min(1.0, max(0.0, 1 - step.exposed_communication_s / messages_s))
    hidden, slowdown = (constants[f"stacks.ours.{name}"] for name in ("tensor_hidden", "overlap_slowdown"))
    low, high = max(0.0, share - SHARE_SPREAD), min(1.0, share + SHARE_SPREAD)
    return {
        "stacks.ours.tensor_hidden": replace(hidden, value=share, low=low, high=high, source="calibration.json"),
        "stacks.ours.overlap_slowdown": replace(slowdown, high=max(slowdown.value, MOST_SLOWDOWN)),
    }


def _ratio(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return modelled seconds over measured seconds, each summed; None without any pairs."""
    modelled, taken = 0.0, 0.0
    for model_s, measured_s in pairs:
        modelled, taken = modelled + model_s, taken + measured_s
    return modelled / taken if taken > 0 else None


def _matmul(table: Rates, timed: MatmulTime) -> float:
    sizes = {
        "forward": (timed.tokens, timed.outputs, timed.inputs),
        "input gradient": (timed.tokens, timed.inputs, timed.outputs),
        "weight gradient": (timed.inputs, timed.outputs, timed.tokens),
    }[timed.role]
    extra = 2.0 * ACCUMULATOR_BYTES * timed.inputs * timed.outputs if timed.role == "weight gradient" else 0.0
    return matmul_s(table, sizes, extra=extra)


def _attention(table: Rates, measured: Calibration, role: str) -> Iterator[tuple[float, float]]:
    """Yield the modelled and the measured seconds of each shape of attention."""
    for timed in measured.attention:
        if timed.role == role:
            forward_s, backward_s = attention_s(
                table,
                sequences=timed.samples,
                heads=timed.heads,
                seq=timed.sequence,
                head=timed.head_size,
                kind="cudnn",
            )
            yield (forward_s if role == "forward" else backward_s), timed.seconds
