"""Choosing the few constants that no document gives, so that published steps come out right.

The logarithms of predicted over published steps are made small, with Huber's loss so that a result that does not fit
pulls no more than a few do, and with the plausible range of each constant as a prior: its ends are a standard deviation
or two away from where the table began.
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmark.planning.step_model.machine_constants import Constant, MachineConstants
from benchmark.planning.step_model.simulated_step import simulate_step
from tests.backtest.published_results import PublishedResult, rates_of

FITTED = (
    "accelerators.A100-80GB.matmul_bf16",
    "accelerators.H100 SXM.matmul_bf16",
    "accelerators.H100 SXM.matmul_fp8",
    "accelerators.H100 SXM.nvlink_gb_s",
    "common.fp8_casts",
    "common.fp8_weight_casts",
    "common.matmul_fill",
    "common.wave_waste",
    "stacks.nemo.jitter_bf16",
    "stacks.nemo.losses",
    "stacks.nemo.step_ms",
    "stacks.nemo.tensor_hidden",
    "stacks.torchtitan.losses",
)
"""The constants that are chosen; everything else is from documents."""
DERIVED = {
    "accelerators.A100-80GB.matmul_fp8": ("accelerators.A100-80GB.matmul_bf16", 1.0),
    "accelerators.H200.matmul_bf16": ("accelerators.H100 SXM.matmul_bf16", 1.0),
    "accelerators.H200.matmul_fp8": ("accelerators.H100 SXM.matmul_fp8", 1.0),
    "accelerators.H200.nvlink_gb_s": ("accelerators.H100 SXM.nvlink_gb_s", 1.0),
    "accelerators.H100 500 W.matmul_bf16": ("accelerators.H100 SXM.matmul_bf16", (500 / 700) ** 0.5),
    "accelerators.H100 500 W.matmul_fp8": ("accelerators.H100 SXM.matmul_fp8", (500 / 700) ** 0.5),
    "accelerators.H100 500 W.nvlink_gb_s": ("accelerators.H100 SXM.nvlink_gb_s", 1.0),
    "stacks.nemo.jitter_fp8": ("stacks.nemo.jitter_bf16", 1.0),
    "stacks.megatron.jitter_bf16": ("stacks.nemo.jitter_bf16", 1.0),
    "stacks.megatron.jitter_fp8": ("stacks.nemo.jitter_bf16", 1.0),
    "stacks.megatron.losses": ("stacks.nemo.losses", 1.0),
    "stacks.torchtitan.jitter_bf16": ("stacks.nemo.jitter_bf16", 1.0),
    "stacks.torchtitan.jitter_fp8": ("stacks.nemo.jitter_bf16", 1.0),
    "accelerators.B200.matmul_bf16": ("accelerators.H100 SXM.matmul_bf16", 2250 / 989.4),
    "accelerators.B200.matmul_fp8": ("accelerators.H100 SXM.matmul_fp8", 4500 / 1978.9),
}
"""Constants that follow from a fitted one: the same chip, the same share of the peak, or a like stack."""
NOISE = 0.03
"""Relative deviation that is expected of a published step."""
HUBER = 2.0
"""Deviations beyond which a result pulls no stronger."""
ROUNDS = 12


def constants_by_name(table: MachineConstants) -> dict[str, Constant]:
    """Return all constants by their names in the table."""
    pairs = [(accelerator, stack) for accelerator in table.accelerators for stack in table.stacks]
    return {name: constant for pair in pairs for name, constant in table.rates(*pair).constants}


def log_errors(
    results: Sequence[PublishedResult], table: MachineConstants, values: Mapping[str, float]
) -> NDArray[np.float64]:
    """Logarithms of predicted over published step times, with other values of some constants."""
    errors = []
    for result in results:
        rates = rates_of(result.work, table)
        names = [name for name, _ in rates.constants if name in values]
        changed = rates.changed({name: Constant(values[name], 0.0, math.inf, "fit") for name in names})
        errors.append(math.log(simulate_step(result.work, changed).total / result.published_s))
    return np.array(errors)


def fit(results: Sequence[PublishedResult], table: MachineConstants, *, rounds: int = ROUNDS) -> dict[str, float]:
    """All values; those of ``FITTED`` are fitted to these results, from the table's on and within their ranges."""
    constants = constants_by_name(table)
    start = {name: float(constant) for name, constant in constants.items()}
    low = np.array([constants[name].low for name in FITTED])
    high = np.array([constants[name].high for name in FITTED])
    middle, spread = (low + high) / 2, np.maximum((high - low) / 2, 1e-9)

    def values_at(place: NDArray[np.float64]) -> dict[str, float]:
        values = {**start, **dict(zip(FITTED, map(float, middle + spread * place), strict=True))}
        return {**values, **{name: values[source] * factor for name, (source, factor) in DERIVED.items()}}

    def residuals(place: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([log_errors(results, table, values_at(place)) / NOISE, place])

    place = np.array([(start[name] - m) / s for name, m, s in zip(FITTED, middle, spread, strict=True)])
    found = least_squares(
        residuals, np.clip(place, -0.95, 0.95), bounds=(-1, 1), loss="huber", f_scale=HUBER, max_nfev=rounds
    )
    return values_at(found.x)


def with_values(text: str, values: Mapping[str, float]) -> str:
    """A table of constants as text, with these values; names that it does not have are left out."""
    for name, value in values.items():
        section, key = name.rsplit(".", 1)
        head, _, rest = section.partition(".")
        before, found, after = text.partition(f'[{head}."{rest}"]\n' if rest else f"[{head}]\n")
        pattern = rf"^{key} = {{ value = [^,]+,"
        text = before + found + re.sub(pattern, f"{key} = {{ value = {value:.4g},", after, count=1, flags=re.MULTILINE)
    return text
