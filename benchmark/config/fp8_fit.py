"""The sizes and GPUs on which the linear layers of blocks can compute in FP8.

The rules are those of the kernels for GPUs; those for CPUs take any size (docs/facts/fp8.md 3).
"""

from dataclasses import fields

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.field_checks import divisors, listed
from benchmark.config.system_config import System
from foundation.errors import InputError
from model.decoder_sizes import DecoderSizes

MULTIPLE = 16
"""Each size of a product is a multiple of this: the rows that are summed lie at addresses of 16 bytes. Tokens are
among them: weight gradients sum over tokens."""
CAPABILITY = (8, 9)
"""First compute capability with FP8: Ada; Hopper and Blackwell have it, too."""
INSTEAD = "or choose --precision bf16"


def require_fp8_sizes(model: DecoderSizes, system: System) -> None:
    """Raise InputError, with sizes that can, if a product of a device has a size that FP8 kernels do not take, or if
    the table of accelerators says that the device has no FP8."""
    if system.accelerator and not ACCELERATORS[system.accelerator].has_fp8:
        able = ", ".join(name for name, entry in ACCELERATORS.items() if entry.has_fp8)
        raise InputError(f"--precision fp8: {system.accelerator} has no FP8; with it: {able}; {INSTEAD}")
    tokens = system.micro_batch_size * model.seq_length
    if tokens % MULTIPLE:
        near = [size for size in range(1, MULTIPLE + 1) if not size * model.seq_length % MULTIPLE]
        raise InputError(
            f"--precision fp8: micro_batch_size {system.micro_batch_size} x seq_length {model.seq_length} are {tokens} "
            f"tokens, not a multiple of {MULTIPLE}; use --micro-batch-size {near[0]} or a multiple of it, {INSTEAD}"
        )
    unfit = unfit_products(model, system.tensor_parallel)
    if unfit:
        able_ranks = [
            ranks
            for ranks in divisors(system.num_devices)
            if not unfit_products(model, ranks)
            and not any(getattr(model, name) % ranks for name in model.cut_by_tensor_parallelism)
        ]
        own_width = any(field.name == "ffn_hidden_size" for field in fields(model))
        widths = "--hidden-size or --ffn-hidden-size" if own_width else "--hidden-size"
        possible = f"--tensor-parallel may be {listed(able_ranks)}" if able_ranks else f"change {widths}"
        raise InputError(
            f"--precision fp8: {unfit[0]} on a device with tensor_parallel {system.tensor_parallel}, not multiples of "
            f"{MULTIPLE}; {possible}, {INSTEAD}"
        )


def unfit_products(model: DecoderSizes, tensor_parallel: int) -> list[str]:
    """Return the products of a block, in words, whose sizes on a device are not multiples of MULTIPLE."""
    of_rank = {name: product.on_rank(tensor_parallel) for name, product in model.products.items()}
    return [f"{name} multiplies {k} x {n}" for name, (k, n) in of_rank.items() if k % MULTIPLE or n % MULTIPLE]


def require_fp8_device(name: str, capability: tuple[int, int]) -> None:
    """Raise InputError for a GPU without FP8. ``capability``: its compute capability."""
    if capability < CAPABILITY:
        words, least = (".".join(map(str, numbers)) for numbers in (capability, CAPABILITY))
        raise InputError(
            f"--precision fp8: {name} has compute capability {words}; FP8 begins at {least} (Ada, Hopper, Blackwell); "
            "choose --precision bf16"
        )
