"""Try the FP8 products of a run at their true shapes: their error beside exact products of the same FP8 numbers, and
their rate beside that of BF16 products."""

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.systems import DEFAULT_SYSTEM, system_called
from benchmark.planning.run_plan.calibration import MatmulRole
from benchmark.planning.slice.device_rates import layer_shapes, products, seconds_per_call
from benchmark.planning.slice.fp8_rates import Fp8Layer
from benchmark.training.engine.rank_device import require_format
from foundation.errors import CheckFailed
from foundation.sizes import significant

MODELS = {"cuda": ("gpt3_175b", "llama31_8b"), "cpu": ("rehearsal", "rehearsal_llama")}
"""Benchmarks whose products are tried, at the shapes of a rank of their default systems."""
LARGEST_ERROR = 2e-2
"""Largest error relative to the exact product in the L2 norm. Rounding the result to BF16 is 2e-3 of it; Hopper's
tensor cores keep some 14 bits of a sum of FP8 products."""


def fp8_products(device: torch.device) -> str:
    """Try all roles of all layers. Raises CheckFailed for wrong numbers, and InputError for a GPU without FP8."""
    require_format("fp8", device)
    return "; ".join(f"{name}: {', '.join(_roles(name, device))}" for name in MODELS[device.type])


def _roles(name: str, device: torch.device) -> Iterator[str]:
    """Yield a line for each role: the largest error of the layers, and the rate in FP8 and BF16 over all of them."""
    benchmark = BENCHMARKS[name]
    system = system_called(DEFAULT_SYSTEM[name], name)
    tokens = system.micro_batch_size * benchmark.model.seq_length
    errors: dict[MatmulRole, float] = {}
    flops: dict[MatmulRole, float] = {}
    seconds: dict[MatmulRole, tuple[float, float]] = {}
    for layer, (inputs, outputs) in layer_shapes(benchmark.model, system.tensor_parallel, joined=True).items():
        if layer == "output":  # it stays in BF16
            continue
        fp8 = Fp8Layer(tokens, inputs, outputs, device)
        in_bf16 = products(tokens, inputs, outputs, device, torch.bfloat16)
        for role, call in fp8.products(weight_gradients=True).items():
            error = relative_error(call(), fp8.exact(role))
            if not error <= LARGEST_ERROR:
                raise CheckFailed(
                    f"{name}, {layer}, {role}: relative error {error:.2g}, expected at most {LARGEST_ERROR:.2g}"
                )
            errors[role] = max(error, errors.get(role, 0.0))
            flops[role] = flops.get(role, 0.0) + 2e-12 * tokens * inputs * outputs
            times = (seconds_per_call(device, kernel) for kernel in (call, in_bf16[role]))
            fp8_s, bf16_s = seconds.get(role, (0.0, 0.0))
            seconds[role] = fp8_s + next(times), bf16_s + next(times)
    for role, error in errors.items():
        fp8_rate, bf16_rate = (significant(flops[role] / spent, 3) for spent in seconds[role])
        yield f"{role} error {error:.1g}, {fp8_rate} TFLOP/s (BF16 {bf16_rate})"


def relative_error(result: Tensor, exact: Tensor) -> float:
    """Return the error relative to an exact result in the L2 norm; NaN if a value is not a number."""
    return float((result.double() - exact).norm() / exact.norm())
