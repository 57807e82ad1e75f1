"""What Python costs per micro-batch: the host's time for the passes of a pipeline stage, without a GPU's launches.

python -m tests.speed.host_time [--layers 12] [--tensor-parallel 4] [--chunks 1] [--recompute selective]

On a GPU the host queues work and the device does it: a stage is as slow as the slower of the two. What is timed here
is the queueing: the true engine, the true number of layers of a rank in the middle of the pipeline, in a world that
exists in this process only (collectives return at once), on tensors so small that the work is nothing: 8 numbers per
head. Every operator is a real one with a real result, unlike on fake or meta tensors, whose shape propagation in Python
takes several times what is to be measured.

The time is the CPU time of the thread that queues, so that other programs on the machine do not count. It is the
difference between steps of many and of few micro-batches over the difference of their numbers, so that what a step
takes once (reductions, the norm) does not count either. Printed are

  all        this time. A CPU operator on tiny tensors takes a few microseconds in C++, about as long as one on a GPU
             takes to allocate its result and to launch its kernel: this is the figure to compare with the device's time
  operators  the same operators on tensors of the same sizes, called one after the other
  the rest   the difference: Python, the schedule, messages (which NCCL takes longer to queue
             than the stand-in here: they are counted)
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.planning.dry_runs.fake_world import fake_world
from benchmark.training.engine.distributed import World
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.engine.train_state import TrainState, empty_state
from model.gpt3_config import GPT3Config
from model.passes.part_pass import MicroBatch

SEQUENCE = 16
FEW, MANY = 16, 48
"""Micro-batches of the two steps that are compared."""
Called = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Recorder(TorchDispatchMode):
    """Keeps every operator that computes, with tensors of zeros in the place of its own, whose memory may be gone."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Called] = []
        self.messages = 0
        """Collectives, sends and receives."""
        self._stand_ins: dict[tuple[Any, ...], Tensor] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function.namespace == "aten":
            self.calls.append((function, *tree_map_only(Tensor, self._stand_in, (args, kwargs or {}))))
        elif function.namespace == "c10d":
            self.messages += 1
        return function(*args, **(kwargs or {}))

    def _stand_in(self, tensor: Tensor) -> Tensor:
        key = (tensor.shape, tensor.stride(), tensor.dtype)
        if key not in self._stand_ins:
            self._stand_ins[key] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).zero_()
        return self._stand_ins[key]


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


def thread_s(call: Callable[[], object]) -> float:
    """Seconds of CPU time of this thread."""
    started = time.thread_time()
    call()
    return time.thread_time() - started


def replay(calls: list[Called]) -> None:
    for function, arguments, named in calls:
        function(*arguments, **named)


@dataclass(frozen=True)
class Step:
    """A step of some number of micro-batches, and the operators it calls."""

    run: Callable[[], object]
    calls: list[Called]
    messages: int


def recorded_step(config: RunConfig, world: World) -> Step:
    state, batches = made_state(config, world), batches_of(config)

    def run() -> None:
        state.pipeline.train(batches, config.num_microbatches)

    run()  # makes what later ones use again
    with Recorder() as recorder:
        run()
    return Step(run, recorder.calls, recorder.messages)


def per_micro_batch_ms(few: Step, many: Step, repeat: int) -> dict[str, list[float]]:
    """Repetitions of what the module's docstring names."""
    found: dict[str, list[float]] = {"all": [], "operators": [], "the rest": []}
    for _ in range(repeat):
        whole_s = thread_s(many.run) - thread_s(few.run)
        with torch.no_grad():
            bare_s = thread_s(lambda: replay(many.calls)) - thread_s(lambda: replay(few.calls))
        for name, seconds in zip(found, (whole_s, bare_s, whole_s - bare_s), strict=True):
            found[name].append(seconds / (MANY - FEW) * 1000)
    return found


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
        few, many = (recorded_step(config, world) for config in configs)
        found = per_micro_batch_ms(few, many, options.repeat)
    topology = f"tensor parallel {options.tensor_parallel}, recompute {options.recompute}, chunks {options.chunks}"
    print(f"{options.layers} layers, {topology}: host time per micro-batch, forward and backward; median (range)")
    for name, values in found.items():
        print(f"  {name:10}{statistics.median(values):8.1f} ms ({min(values):.1f} to {max(values):.1f})")
    counts = (len(many.calls) - len(few.calls), many.messages - few.messages)
    operators, messages = (count / (MANY - FEW) for count in counts)
    print(f"  {operators:,.0f} operators and {messages:,.0f} messages per micro-batch")


if __name__ == "__main__":
    main()
