"""The environment variables of NCCL, CUDA and PyTorch that a run sets for itself: data only.

They are set before CUDA and the first process group start (``set_environment`` in
benchmark/training/engine/distributed.py); one that is set already stays. Not set, for PyTorch does by itself what they
asked for: TORCH_NCCL_AVOID_RECORD_STREAMS (PyTorch 2.11 warns that it is the default) and
TORCH_NCCL_ASYNC_ERROR_HANDLING. NVTE_* are read by Transformer Engine, which is not used.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmark.config.system_config import System

ONE_QUEUE = ("A100-80GB", "A100", "H100 SXM", "H100 NVL", "H100 PCIe", "H200", "H200 NVL", "GH200")
"""Accelerators that start kernels in the order in which they were handed over only where there is one queue."""


@dataclass(frozen=True)
class RuntimeVariable:
    name: str
    value: str
    applies: Callable[[System, bool], bool]
    """The function tells whether a run on GPUs sets the variable, from the system and from ``deterministic``."""
    reason: str


def _always(system: System, deterministic: bool) -> bool:
    return True


def _messages_of_nccl(system: System, deterministic: bool) -> bool:
    """Unknown accelerators are left alone."""
    copied = system.collectives.copy_engines != "none"
    return system.tensor_parallel > 1 and system.accelerator in ONE_QUEUE and not copied


def _copied_messages(system: System, deterministic: bool) -> bool:
    return system.tensor_parallel > 1 and system.collectives.copy_engines != "none"


def _deterministic(system: System, deterministic: bool) -> bool:
    return deterministic


RUNTIME_VARIABLES = (
    RuntimeVariable(
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "1",
        _messages_of_nccl,
        "a collective that was handed over before a matrix product starts before it, and runs beside it; with several "
        "queues the product may take all multiprocessors first. Blackwell needs no such order",
    ),
    RuntimeVariable(
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "8",
        _copied_messages,
        "a message that copy engines carry is several commands, each of which waits for the one before: in one queue "
        "every product handed over after it would wait, too. 8 is CUDA's own number",
    ),
    RuntimeVariable(
        "TORCH_GLOO_LAZY_INIT",
        "1",
        _always,
        "gloo, which carries only small messages of the host here, connects two processes when they first talk. "
        "Otherwise each connects to all: at 2,048 processes 8.4 million questions to the store of rank 0, whose "
        "answers of 16 KB are 69 GB, and 2,047 open connections in each process, for every group of all processes",
    ),
    RuntimeVariable(
        "CUBLAS_WORKSPACE_CONFIG",
        ":4096:8",
        _deterministic,
        "cuBLAS repeats to the bit only with workspaces of a fixed size; PyTorch refuses to compute without it",
    ),
    RuntimeVariable(
        "NCCL_ALGO",
        "Ring",
        _deterministic,
        "the order of a sum follows from the algorithm, which NCCL otherwise chooses by size and by what it measures; "
        "this also leaves out sums within switches",
    ),
    RuntimeVariable(
        "NCCL_PROTO",
        "Simple",
        _deterministic,
        "likewise the protocol, which decides how a message is cut into parts",
    ),
)


def runtime_environment(system: System, *, deterministic: bool) -> dict[str, str]:
    """Variables of a run by name; none without GPUs."""
    if system.device != "cuda":
        return {}
    return {variable.name: variable.value for variable in RUNTIME_VARIABLES if variable.applies(system, deterministic)}
