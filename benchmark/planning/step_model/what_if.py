"""``--what-if nvlink=2x`` plans a step on machines or with code that do not exist."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from benchmark.planning.step_model.machine_constants import Constant, Rates
from benchmark.planning.step_model.stacks import Feature, OverlapFeature
from benchmark.planning.step_model.workload import Workload
from foundation.errors import InputError

FACTORS: Mapping[str, tuple[str, ...]] = {
    "matmul": ("accelerators.{accelerator}.matmul_bf16", "accelerators.{accelerator}.matmul_fp8"),
    "attention": ("accelerators.{accelerator}.attention_forward", "accelerators.{accelerator}.attention_backward"),
    "memory": ("accelerators.{accelerator}.memory_tb_s",),
    "nvlink": ("accelerators.{accelerator}.nvlink_gb_s",),
    "network": ("common.network_share",),
    "elementwise": ("stacks.{stack}.elementwise",),
}
"""Names that can be multiplied, and the constants that each one multiplies."""
OVERHEADS: Mapping[str, tuple[str, ...]] = {
    "host": ("stacks.{stack}.host_ms_per_block",),
    "losses": ("stacks.{stack}.losses",),
    "jitter": ("stacks.{stack}.jitter_bf16", "stacks.{stack}.jitter_fp8"),
}
"""Names of overheads that can be switched off, and the constants of each one."""
FEATURES: tuple[Feature, ...] = (*get_args(OverlapFeature), "compiled-kernels")
LARGEST_FACTOR = 100.0
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


def apply_what_if(words: Sequence[str], work: Workload, rates: Rates) -> tuple[Workload, Rates]:
    """Return workload and rates as changed: ``NAME=2x`` multiplies, ``NAME=off`` switches off overlaps, compiled
    kernels and overheads, ``tp-overlap=full`` hides everything.

    Raises InputError for any other word, listing the allowed ones, and for a name that comes twice.
    """
    require_what_ifs(words)
    for word in words:
        name, _, value = word.partition("=")
        if name in FACTORS:
            factor = float(value.removesuffix("x"))
            names = [constant.format(accelerator=work.accelerator, stack=work.stack) for constant in FACTORS[name]]
            constants = dict(rates.constants)
            rates = rates.changed({constant: constants[constant].scaled(factor, "what-if") for constant in names})
        elif name in OVERHEADS:
            names = [constant.format(stack=work.stack) for constant in OVERHEADS[name]]
            rates = rates.changed(dict.fromkeys(names, Constant(0.0, 0.0, 0.0, "what-if")))
        elif value == "full":
            rates = rates.changed({f"stacks.{work.stack}.tensor_hidden": Constant(1.0, 1.0, 1.0, "what-if")})
        else:
            switched_off = next(feature for feature in FEATURES if feature == name)
            work = replace(work, without=(*work.without, switched_off))
    return work, rates


def require_what_ifs(words: Sequence[str]) -> None:
    """Raise InputError for a word that is not a what-if, listing the allowed ones, and for a name that comes twice."""
    earlier: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if earlier.setdefault(name, word) is not word:
            raise InputError(f"--what-if {word}: {earlier[name]} is given too; expected each name once")
        if not equals or name not in (*FACTORS, *OVERHEADS, *FEATURES):
            options = f"{', '.join(FACTORS)} =2x; {', '.join((*FEATURES, *OVERHEADS))} =off; tp-overlap=full"
            raise InputError(f"--what-if {word}: expected one of {options}")
        if name in FACTORS:
            number = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)x", value)
            if not number or not 0 < float(number[1]) <= LARGEST_FACTOR:
                range_text = f"a factor above 0, at most {LARGEST_FACTOR:g}, such as 2x"
                raise InputError(f"--what-if {word}: expected {name}= {range_text}")
        elif value != "off" and word != "tp-overlap=full":
            raise InputError(f"--what-if {word}: expected {name}=off" + (" or =full" if name == "tp-overlap" else ""))
