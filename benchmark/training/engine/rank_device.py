"""The device of a rank, the cores near it, and the formats that it computes in."""

import math
from collections.abc import Callable

import torch

from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from benchmark.config.system_config import System
from benchmark.training.engine.pipeline_order import PipelineShape
from benchmark.training.engine.rank_environment import Environment
from benchmark.training.machine.process_setup import keep_near
from foundation.errors import InputError
from foundation.this_machine import count_cores
from model.decoder_sizes import DecoderSizes
from model.passes.linear.linear_formats import LinearFormat
from model.passes.pass_sizes import terms_together

FP8_CAPABILITY = (8, 9)
"""First compute capability of GPUs that multiply FP8 numbers."""


def device_of(system: System, environment: Environment) -> torch.device:
    """Return this process's device: the one with its number, or its only visible one if Slurm gave it one of its own.

    The process is bound to the cores near its GPU. On a CPU it takes OMP_NUM_THREADS threads, or else its share of the
    cores. Raises InputError when the device does not exist.
    """
    if system.device == "cpu":
        share = max(1, count_cores() // system.devices_per_node)
        torch.set_num_threads(environment.threads or share)
        return torch.device("cpu")
    count = torch.cuda.device_count()
    index = 0 if environment.visible_gpus == count == 1 else environment.local_rank
    if index >= count:
        raise InputError(
            f"system {system.name} needs {system.devices_per_node} CUDA devices per machine; PyTorch sees "
            f"{count} here. Choose a CPU system such as --system cpu_p1, or mend the driver"
        )
    device = torch.device("cuda", index)
    addresses = [pci_address(torch.device("cuda", number)) for number in range(count)]
    near = keep_near(addresses[index], addresses)
    if near:
        torch.set_num_threads(min(torch.get_num_threads(), len(near)))
    torch.cuda.set_device(device)  # after it is bound: this allocates memory of the host and starts threads
    # A product that cuBLAS splits is to be summed in FP32, as all others are. On an H100 this changed neither bits nor
    # time of any of the benchmark's products (docs/notes/hopper.md).
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return device


def pci_address(device: torch.device) -> str:
    """Return an address such as "0000:1b:00.0"; empty if PyTorch does not know it."""
    properties = torch.cuda.get_device_properties(device)
    domain, bus, number = (getattr(properties, f"pci_{name}_id", None) for name in ("domain", "bus", "device"))
    return "" if None in (domain, bus, number) else f"{domain:04x}:{bus:02x}:{number:02x}.0"


def require_format(precision: Precision, device: torch.device) -> None:
    """Raise InputError if a GPU lacks the format of the run's products."""
    if NUMBER_FORMATS[precision].product_bits != 8 or device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        number, least = (".".join(map(str, version)) for version in (capability, FP8_CAPABILITY))
        raise InputError(
            f"--precision {precision}: {torch.cuda.get_device_name(device)} has compute capability {number}; FP8 "
            f"begins at {least} (Ada, Hopper, Blackwell); choose --precision bf16"
        )


def values_dtype(precision: Precision) -> torch.dtype:
    """Return the type of activations, gathered weights, attention and messages between pipeline stages."""
    dtype: torch.dtype = getattr(torch, NUMBER_FORMATS[precision].value_dtype)
    return dtype


def linear_formats(
    precision: Precision, sizes: DecoderSizes, system: System, bf16_layers: tuple[int, int]
) -> Callable[[int], LinearFormat]:
    """Return a function that gives the format of the linear layers of a block, by its number. ``bf16_layers``: blocks
    at the beginning and at the end of the model that an FP8 run leaves in BF16."""
    if NUMBER_FORMATS[precision].product_bits != 8:
        return lambda _: "plain"
    first, end = bf16_layers[0], sizes.num_layers - bf16_layers[1]
    fp8: LinearFormat = "fp8" if system.fp8_weight_gradients else "fp8_bf16_gradients"
    return lambda layer: fp8 if first <= layer < end else "plain"


def weight_terms(precision: Precision, sizes: DecoderSizes, system: System) -> int:
    """Return how many products of micro-batches are added to a weight's gradient at once, on all ranks the same: one,
    unless they are FP8 products that are kept."""
    if system.shard_gradients or linear_formats(precision, sizes, system, (0, 0))(0) != "fp8":
        return 1
    layers = math.ceil(sizes.num_layers / system.num_pipeline_stages)
    turn = PipelineShape(system.pipeline_parallel, 0, system.pipeline_chunks).turn
    return terms_together(layers * sizes.layer_matrix_weights / system.tensor_parallel, turn)
