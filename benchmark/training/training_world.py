"""Enter the world of a run: environment variables, process group, and the kernels of this process."""

import datetime
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import torch

from benchmark.config.number_formats import Precision
from benchmark.config.runtime_variables import runtime_environment
from benchmark.config.system_config import System
from benchmark.run_record.phases import PhaseLog
from benchmark.training.engine.distributed import World, joined_world
from benchmark.training.engine.rank_device import linear_formats, require_format, values_dtype, weight_terms
from benchmark.training.engine.rank_environment import Environment, set_environment
from benchmark.training.machine.kernel_cache import cache_of_kernels
from benchmark.training.machine.run_environment import use_deterministic_kernels
from model.decoder_sizes import DecoderSizes
from model.passes.attention import CudnnFlash, Repeated, refuse_kernel
from model.passes.proofs.attention_proof import proved_attention
from model.passes.proofs.kernel_proof import prove_kernels


@contextmanager
def training_world(
    system: System,
    environment: Environment,
    *,
    deterministic: bool = False,
    attention: tuple[DecoderSizes, Precision] | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    phases: PhaseLog | None = None,
    note: Callable[[str], None] = lambda line: None,
    timeout: datetime.timedelta | None = None,
) -> Iterator[World]:
    """Prepare this process for the system, join its process group, and leave it when the block ends well. Collective.

    Nothing may have started CUDA in this process yet. ``attention``: model and precision of the passes, whose kernels
    are then compiled and proved; None: no pass is computed. ``variables``: more environment variables, set first.
    ``note`` is given the lines about the kernels. ``timeout``: as for :func:`joined_world`, whose errors are
    raised.
    """
    phases = phases or PhaseLog()
    set_environment(variables)
    set_environment(runtime_environment(system, deterministic=deterministic))
    if deterministic:
        use_deterministic_kernels()
    phases.enter("join", -1)
    with joined_world(system, environment, timeout) as world:
        phases.enter("load", -1)
        if attention is not None:
            sizes, precision = attention
            require_format(precision, world.device)
            lines = (
                settle_attention(sizes, system, precision, world),
                settle_kernels(sizes, system, precision, world, deterministic=deterministic),
            )
            for line in filter(None, lines):
                note(line)
        yield world


def settle_attention(sizes: DecoderSizes, system: System, precision: Precision, world: World) -> str:
    """Choose this process's attention kernel before the state is loaded, proved on the shape of its passes
    (model/passes/proofs/attention_proof.py), in a second or two.

    Returns the line to log; empty on a CPU, which has one kernel. Raises RuntimeError if no kernel is right.
    """
    if world.device.type != "cuda":
        return ""
    if not system.cudnn_attention:
        refuse_kernel(CudnnFlash())
        refuse_kernel(Repeated(CudnnFlash()))
    proof = proved_attention(
        world.device,
        values_dtype(precision),
        sizes,
        ranks=system.tensor_parallel,
        batch=system.micro_batch_size,
    )
    torch.cuda.empty_cache()  # the state is to find the device as it was
    return proof


def settle_kernels(
    sizes: DecoderSizes, system: System, precision: Precision, world: World, *, deterministic: bool
) -> str:
    """Compile this process's fused kernels before the state is loaded, proved on the shapes of its passes
    (model/passes/proofs/kernel_proof.py), in some seconds.

    Returns the line to log; empty on a CPU, which compiles none.
    """
    if world.device.type != "cuda" or not system.compiled_kernels:
        return ""
    set_environment(cache_of_kernels())
    line = prove_kernels(
        sizes,
        ranks=system.tensor_parallel,
        batch=system.micro_batch_size,
        dtype=values_dtype(precision),
        device=world.device,
        deterministic=deterministic,
        linear=linear_formats(precision, sizes, system, (0, 0))(0),
        terms=weight_terms(precision, sizes, system),
    )
    torch.cuda.empty_cache()  # the state is to find the device as it was
    return line
