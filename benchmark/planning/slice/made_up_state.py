"""Make up weights and tokens: processes that have the same shard of them get the same numbers."""

import math
import zlib

import torch
from torch.distributed.tensor import DTensor

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import Precision
from benchmark.config.system_config import System
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.engine.distributed import World
from benchmark.training.engine.train_state import TrainState, empty_state
from model.architectures import architecture_of
from model.initial_weights import DEVIATION
from model.passes.chunk_pass import MicroBatch

SEED = 1


def made_up_state(benchmark: Benchmark, system: System, precision: Precision, world: World) -> TrainState:
    """Return a state at the step where the benchmark starts: matrices are random, gains and biases are as the
    architecture begins with them, moments are zero."""
    architecture = architecture_of(benchmark.model)
    state = empty_state(benchmark, system, precision, world, starting_progress(benchmark, SEED))
    for name, tensor in state.tensors().items():
        assert isinstance(tensor, DTensor)
        local = tensor.to_local()
        if name.startswith("model/") and local.dim() > 1:
            smaller = math.sqrt(2 * benchmark.model.num_layers) if name.endswith(architecture.added) else 1
            local.normal_(0, DEVIATION / smaller, generator=_generator(name, tensor))
        else:
            local.fill_(architecture.vectors_begin_at if name.startswith("model/") else 0.0)
    state.optimizer.start_at(benchmark.start_iterations)
    return state


def _generator(name: str, tensor: DTensor) -> torch.Generator:
    """Return a generator seeded by the shard, not by the process, so that copies of a shard get the same numbers. The
    two copies of the word table have one name."""
    coordinates = tuple(tensor.device_mesh.get_coordinate() or ())
    shard = [index for index, placement in zip(coordinates, tensor.placements, strict=True) if placement.is_shard()]
    return torch.Generator(tensor.to_local().device).manual_seed(zlib.crc32(f"{name} {shard} {SEED}".encode()))


def made_up_batches(benchmark: Benchmark, system: System, world: World) -> list[MicroBatch]:
    """Return a step's batches of random tokens; every position counts except each sample's last."""
    model, size = benchmark.model, system.micro_batch_size
    generator = torch.Generator().manual_seed(SEED + world.data_rank)
    batches = []
    for _ in range(system.num_microbatches(benchmark.global_batch_size)):
        tokens_BS = torch.randint(model.vocab_size, (size, model.seq_length), generator=generator)
        mask_BS = torch.ones(tokens_BS.shape)
        mask_BS[:, -1] = 0
        batch = MicroBatch(tokens_BS, tokens_BS.roll(-1, dims=1), mask_BS)
        batches.append(batch.pinned() if world.device.type == "cuda" else batch)
    return batches
