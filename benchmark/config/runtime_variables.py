"""The environment variables of NCCL, CUDA, PyTorch and OpenMP that a run sets for itself, with their reasons.

They are set before CUDA and the first process group start (``set_environment`` in
benchmark/training/engine/rank_environment.py); one that is set already stays. Not set, for PyTorch does by itself what
they asked for: TORCH_NCCL_AVOID_RECORD_STREAMS (PyTorch 2.11 warns that it is the default) and
TORCH_NCCL_ASYNC_ERROR_HANDLING. NVTE_* are read by Transformer Engine, which is not used.
"""

import os

from benchmark.config.system_config import System

ONE_QUEUE = ("A100-80GB", "A100", "H100 SXM", "H100 NVL", "H100 PCIe", "H200", "H200 NVL", "GH200")
"""Accelerators that start kernels in the order in which they were handed over only where there is one queue. Blackwell
needs no such order; unknown accelerators are left alone."""


def let_threads_sleep() -> None:
    """Let idle OpenMP threads of this process sleep. Called before PyTorch is imported, for OpenMP reads its variables
    once.

    A thread that spins takes the core that the thread it waits for would run on, where processes share cores: a step
    of the rehearsal in one process then took up to twelve seconds instead of 0.2. The launcher does the same.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def runtime_environment(system: System, *, deterministic: bool) -> dict[str, str]:
    """Return the variables of a run by name; none without GPUs."""
    if system.device != "cuda":
        return {}
    # gloo, which carries only small messages of the host here, connects two processes when they first talk. Otherwise
    # each connects to all: at 2,048 processes 8.4 million questions to the store of rank 0, whose answers of 16 KB are
    # 69 GB, and 2,047 open connections in each process, for every group of all processes.
    variables = {"TORCH_GLOO_LAZY_INIT": "1"}
    if system.tensor_parallel > 1 and system.collectives.copy_engines != "none":
        # A message that copy engines carry is several commands, each of which waits for the one before: in one queue
        # every product handed over after it would wait, too. 8 is CUDA's own number.
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"
    elif system.tensor_parallel > 1 and system.accelerator in ONE_QUEUE:
        # A collective that was handed over before a matrix product starts before it, and runs beside it; with several
        # queues the product may take all multiprocessors first.
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if deterministic:
        # cuBLAS repeats to the bit only with workspaces of a fixed size; PyTorch refuses to compute without it.
        variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        # NCCL otherwise chooses algorithm and protocol by size and by what it measures: the one decides the order of a
        # sum, and rings leave out sums within switches; the other decides how a message is cut into parts.
        variables |= {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}
    return variables
