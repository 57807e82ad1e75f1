"""``--what-if nvlink=2x`` plans a step on machines or with code that do not exist."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from benchmark.planning.step_model.machine_constants import Constant
from benchmark.planning.step_model.stacks import Feature
from benchmark.planning.step_model.workload import Workload
from foundation.errors import InputError

CONSTANTS: Mapping[str, tuple[str, ...]] = {
    "matmul": ("accelerators.{accelerator}.matmul_bf16", "accelerators.{accelerator}.matmul_fp8"),
    "attention": ("accelerators.{accelerator}.attention_forward", "accelerators.{accelerator}.attention_backward"),
    "memory": ("accelerators.{accelerator}.memory_tb_s",),
    "nvlink": ("accelerators.{accelerator}.nvlink_gb_s",),
    "network": ("common.network_share",),
    "host": ("stacks.{stack}.host_ms_per_block",),
    "elementwise": ("stacks.{stack}.elementwise",),
    "losses": ("stacks.{stack}.losses",),
    "jitter": ("common.jitter",),
}
"""Names that can be multiplied, and the constants that each one multiplies."""
CAN_BE_OFF = ("host", "losses", "jitter")
FEATURES: tuple[Feature, ...] = get_args(Feature)
MOST = 100.0
"""Largest factor."""
MOST_LOST = 0.9
"""Largest share of the time that no operation accounts for."""
IDEAS = (
    "tp-overlap=full",
    "matmul=1.05x",
    "elementwise=0.8x",
    "jitter=off",
    "losses=off",
    "host=off",
    "nvlink=2x",
    "network=2x",
    "attention=1.5x",
    "memory=1.5x",
)
"""Ideas whose gain for the fastest layout a search reports."""


def apply_what_if(
    words: Sequence[str], work: Workload, constants: Mapping[str, Constant]
) -> tuple[Workload, Mapping[str, Constant]]:
    """Return workload and constants as changed: ``NAME=2x`` multiplies, ``NAME=off`` switches off overlaps and
    overheads, ``tp-overlap=full`` hides everything.

    Raises InputError for any other word, listing the allowed ones, and for a name given twice.
    """
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if given.setdefault(name, word) is not word:
            raise InputError(f"--what-if {word}: {given[name]} is given too; expected each name once")
        if not equals or (name not in CONSTANTS and name not in FEATURES):
            known = f"{', '.join(CONSTANTS)} =2x; {', '.join((*FEATURES, *CAN_BE_OFF))} =off; tp-overlap=full"
            raise InputError(f"--what-if {word}: expected one of {known}")
        if name in FEATURES:
            work, constants = _switched(name, value, word, work, constants)
        else:
            factor = _factor(name, value, word)
            names = [each.format(accelerator=work.accelerator, stack=work.stack) for each in CONSTANTS[name]]
            scaled = {each: _times(constants[each], factor) for each in names if each in constants}
            share = max((one.high for one in scaled.values()), default=0.0)
            if name == "losses" and share > MOST_LOST:  # a share of all time cannot be all of it
                most = math.floor(10 * MOST_LOST / (share / factor)) / 10
                raise InputError(f"--what-if {word}: losses are a share of the time; expected at most losses={most:g}x")
            constants = {**constants, **scaled}
    return work, constants


def _switched(
    name: Feature, value: str, word: str, work: Workload, constants: Mapping[str, Constant]
) -> tuple[Workload, Mapping[str, Constant]]:
    if value == "off":
        return replace(work, without=(*work.without, name)), constants
    if name == "tp-overlap" and value == "full":
        hidden = f"stacks.{work.stack}.tensor_hidden"
        return work, {**constants, hidden: Constant(1.0, 1.0, 1.0, "what-if")}
    raise InputError(f"--what-if {word}: expected {name}=off" + (" or =full" if name == "tp-overlap" else ""))


def _factor(name: str, value: str, word: str) -> float:
    if value == "off" and name in CAN_BE_OFF:
        return 0.0
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)x", value)
    if not found or not 0 < float(found[1]) <= MOST:
        off = " or off" if name in CAN_BE_OFF else ""
        raise InputError(f"--what-if {word}: expected {name}= a factor above 0, at most {MOST:g}, such as 2x{off}")
    return float(found[1])


def _times(constant: Constant, factor: float) -> Constant:
    return replace(
        constant,
        value=constant.value * factor,
        low=constant.low * factor,
        high=constant.high * factor,
        source="what-if",
    )
