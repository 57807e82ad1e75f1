"""The environment variables of NCCL, CUDA, PyTorch and OpenMP that a run sets for itself, with their reasons.

They are set before CUDA and the first process group start (``set_environment`` in
benchmark/training/engine/rank_environment.py); a variable that is set already stays. Not set are
TORCH_NCCL_AVOID_RECORD_STREAMS and TORCH_NCCL_ASYNC_ERROR_HANDLING, which are PyTorch's defaults (2.11 warns about the
first), and NVTE_*, which Transformer Engine reads.

NVIDIA's own runs set more (mlcommons/training_results_v5.1, NVIDIA/benchmarks/llama31_8b/implementations/nemo/
config_common.sh; MLPerf training 4.0's config_common.sh of GPT-3 has the same but for the numbers in brackets):

    variable there                    here
    NCCL_NVLS_ENABLE=0                "needed to save memory": NCCL decides; `--no-nccl-nvls`, tried by `slice
                                      --tune-collectives`
    NCCL_P2P_NET_CHUNKSIZE=2097152    set, where pipeline stages are on several machines; no slice of one can try it
    NCCL_MIN_CTAS=16, NCCL_MAX_CTAS=32 (8 between tensor-parallel ranks)
                                      NCCL decides; `--nccl-ctas` for tensor-parallel ranks, 8, 16 and 32 are tried
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
                                      not set: a step asks for the same sizes each time, and one H100 held 1.001 times
                                      the dry run's bytes (docs/notes/hopper.md); set it where reserved memory is
                                      far above allocated memory
    NVTE_FWD_LAYERNORM_SM_MARGIN=16 (8), NVTE_BWD_LAYERNORM_SM_MARGIN=16 (8)
                                      none: multiprocessors kept free for messages lost more than they gained on one
                                      H100 (docs/notes/hopper.md)
    bindpcie --cpu=node               each process binds itself to cores near its GPU (process_setup.py)

NCCL_LAUNCH_ORDER_IMPLICIT (NCCL 2.26, its user guide: Using multiple NCCL communicators concurrently) makes NCCL begin
the messages of several communicators in the host's order; without it applications must order them. Four are in flight
here. With one hardware queue the GPU keeps the host's order by itself. With several, the passes' order waits for no
message that stands behind another (tests/benchmark/training/engine/hardware_queue.py). So it is not set;
`--nccl-launch-order` sets it, and is tried by `slice --tune-collectives`.
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
    if system.pipeline_parallel > 1 and system.nodes > 1:
        # Bytes of a part of a message between pipeline stages through the network, NVIDIA's figure; NCCL's is 128 KiB.
        variables["NCCL_P2P_NET_CHUNKSIZE"] = "2097152"
    if not system.collectives.nccl_nvls:
        variables["NCCL_NVLS_ENABLE"] = "0"
    if system.collectives.nccl_launch_order:
        variables["NCCL_LAUNCH_ORDER_IMPLICIT"] = "1"
    # A process compiles some ten small kernels, one after the other; PyTorch would start up to 32 processes for each.
    variables["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    if deterministic:
        # cuBLAS repeats to the bit only with workspaces of a fixed size; PyTorch refuses to compute without it.
        variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        # NCCL otherwise chooses algorithm and protocol by size and by what it measures: the one decides the order of a
        # sum, and rings leave out sums within switches; the other decides how a message is cut into parts.
        variables |= {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}
    return variables
