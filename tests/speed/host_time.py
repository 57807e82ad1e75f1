"""What Python costs per micro-batch: the host's time for the passes of a pipeline stage, without a GPU's launches.

python -m tests.speed.host_time [--layers 12] [--tensor-parallel 4] [--chunks 1] [--recompute selective]

On a GPU the host queues work and the device does it: a stage is as slow as the slower of the two. What is timed here
is the queueing: the true engine, the true number of layers of a rank in the middle of the pipeline, in a world that
exists in this process only (collectives return at once), on tensors so small that the work is nothing: 8 numbers per
head. Every operator is a real one with a real result, unlike on fake or meta tensors, whose shape propagation in Python
takes several times what is to be measured.

The time is the CPU time of the thread that queues, so that other programs on the machine do not count. It is the
difference between steps of many and of few micro-batches over the difference of their numbers, so that what a step
takes once (reductions, the norm) does not count either. An operator on tiny tensors takes a few microseconds in C++,
about as long as one on a GPU takes to allocate its result and to launch its kernel.
"""

import argparse
import dataclasses
import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.planning.fake_device.fake_world import fake_world
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.engine.distributed import World
from benchmark.training.engine.train_state import TrainState, empty_state
from model.gpt3_config import GPT3Config
from model.passes.chunk_pass import MicroBatch

SEQUENCE = 16
FEW, MANY = 16, 48
"""Micro-batches of the two steps that are compared."""


class Recorder(TorchDispatchMode):
    """Counts operators that compute, and messages: collectives, sends and receives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.called = Counter[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called[function.namespace] += 1
        return function(*args, **(kwargs or {}))


def tiny_config(options: argparse.Namespace, micro_batches: int) -> RunConfig:
    """The 175B benchmark's topology with a model as deep and as narrow as can be."""
    tensor, stages = options.tensor_parallel, options.pipeline_parallel
    system = System(
        name="host_time",
        device="cpu",
        nodes=stages,
        devices_per_node=tensor,
        micro_batch_size=1,
        tensor_parallel=tensor,
        pipeline_parallel=stages,
        pipeline_chunks=options.chunks,
        recompute=options.recompute,
    )
    model = GPT3Config(
        num_layers=options.layers * stages,
        hidden_size=8 * tensor,
        num_attention_heads=tensor,
        seq_length=SEQUENCE,
        vocab_size=16 * tensor,
        padded_vocab_size=16 * tensor,
        max_position_embeddings=SEQUENCE,
    )
    benchmark = dataclasses.replace(
        GPT3_175B, model=model, global_batch_size=micro_batches, start_global_batch_size=micro_batches
    )
    return RunConfig(benchmark=benchmark, system=system)


def made_state(config: RunConfig, world: World) -> TrainState:
    """Weights of zeros: what is computed does not matter."""
    progress = starting_progress(config.benchmark, 0)
    state = empty_state(config.benchmark, config.system, config.precision, world, progress)
    for tensor in state.tensors().values():
        tensor.zero_()
    return state


def batches_of(config: RunConfig) -> list[MicroBatch]:
    tokens = torch.zeros(1, SEQUENCE, dtype=torch.int64)
    return [MicroBatch(tokens, tokens, torch.ones(1, SEQUENCE))] * config.num_microbatches


def timed_step(config: RunConfig, world: World) -> tuple[Callable[[], float], Counter[str]]:
    """Return what does a step and tells this thread's seconds of CPU time, and what a step calls."""
    state, batches = made_state(config, world), batches_of(config)

    def run() -> float:
        started = time.thread_time()
        state.pipeline.train(batches, config.num_microbatches)
        return time.thread_time() - started

    run()  # makes what later ones use again
    with Recorder() as recorder:
        run()
    return run, recorder.called


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12, help="of one rank, all its chunks together")
    parser.add_argument("--tensor-parallel", type=int, default=4)
    parser.add_argument("--pipeline-parallel", type=int, default=8)
    parser.add_argument("--chunks", type=int, default=1)
    parser.add_argument("--recompute", default="selective")
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # BF16 as on a GPU: without the mode that stands in for it on CPUs that are slow at it.
    mock.patch("benchmark.training.engine.pipeline.cpu_has_bf16", lambda: True).start()
    configs = tiny_config(options, FEW), tiny_config(options, MANY)
    system = configs[0].system
    with fake_world(system, system.pipeline_parallel // 2 * system.tensor_parallel) as world:
        (few, called_by_few), (many, called_by_many) = (timed_step(config, world) for config in configs)
        values = [(many() - few()) / (MANY - FEW) * 1000 for _ in range(options.repeat)]
    topology = f"tensor parallel {options.tensor_parallel}, recompute {options.recompute}, chunks {options.chunks}"
    print(f"{options.layers} layers, {topology}: host time per micro-batch, forward and backward")
    print(f"  {statistics.median(values):.1f} ms ({min(values):.1f} to {max(values):.1f})")
    operators, messages = ((called_by_many[kind] - called_by_few[kind]) / (MANY - FEW) for kind in ("aten", "c10d"))
    print(f"  {operators:,.0f} operators and {messages:,.0f} messages")


if __name__ == "__main__":
    main()
