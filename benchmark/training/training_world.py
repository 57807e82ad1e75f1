"""Enter the world of a run: environment variables, process group, and the kernels of this process."""

import datetime
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from benchmark.config.number_formats import Precision
from benchmark.config.runtime_variables import runtime_environment
from benchmark.config.system_config import System
from benchmark.run_record.phases import PhaseLog
from benchmark.training.engine.distributed import World, joined_world
from benchmark.training.engine.rank_device import require_format
from benchmark.training.engine.rank_environment import Environment, set_environment
from benchmark.training.engine.train_state import settle_attention, settle_kernels
from benchmark.training.machine.run_environment import use_deterministic_kernels
from model.decoder_sizes import DecoderSizes


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
