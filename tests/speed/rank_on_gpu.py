"""The passes of one rank of a system of hundreds, on one GPU, beside kernels that stand in for its messages.

python -m tests.speed.rank_on_gpu [--system dgxh100_n64] [--stage 4] [--ctas 0 8 16 24] [--microseconds 300]

The true engine runs the rank's layers at their true size, in a world that exists in this process only (as in
host_time.py). Where the tensor-parallel ranks would send to each other, a kernel of N CTAs starts on a stream of its
own: it moves the bytes of the message within this GPU, takes at least so many microseconds, and fills the
multiprocessors it runs on. N = 0: what would arrive is there at once.

What is printed is the difference between steps of many and of few micro-batches over the difference of their numbers.
Not in it: waiting for other ranks, messages between stages and data-parallel ranks, the norm, Adam. A first stage and a
last one read made-up tokens. The losses are wrong, for the other ranks' terms are missing.
"""

import argparse
import dataclasses
import gc
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.runtime_variables import runtime_environment
from benchmark.config.systems import SYSTEMS
from benchmark.planning.fake_device.fake_world import fake_world
from benchmark.planning.slice.device_rates import event_now
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.engine.rank_environment import set_environment
from benchmark.training.engine.train_state import empty_state
from model.flops import part_flops_per_token
from model.passes.chunk_pass import MicroBatch
from model.passes.tensor_group import Pending, TensorGroup

FEW, MANY = 8, 24
"""Micro-batches of the two steps that are compared."""
THREADS = 512
SOURCE = r"""
__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
extern "C" __global__ void gather(const uint4* part, uint4* whole, int each, int parts, int nanoseconds) {
  unsigned long long begin = now();
  int stride = gridDim.x * blockDim.x, total = each * parts;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += 4 * stride) {
    uint4 values[4];
    for (int k = 0; k < 4; k++) if (i + k * stride < total) values[k] = part[(i + k * stride) % each];
    for (int k = 0; k < 4; k++) if (i + k * stride < total) whole[i + k * stride] = values[k];
  }
  while (now() - begin < nanoseconds);
}
extern "C" __global__ void reduce_scatter(const uint4* terms, uint4* part, int each, int parts, int nanoseconds) {
  unsigned long long begin = now();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < each; i += gridDim.x * blockDim.x) {
    uint4 sum = terms[i];
    for (int rank = 1; rank < parts; rank++) sum.x ^= terms[(size_t)rank * each + i].x & 1;  // read, hardly added
    part[i] = sum;
  }
  while (now() - begin < nanoseconds);
}
"""


class Arrival:
    """What a pass waits for."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._done = stream.record_event()

    def wait(self) -> None:
        torch.cuda.current_stream().wait_event(self._done)


class StandInMessages:
    """``TensorGroup``'s two messages, on one GPU."""

    def __init__(self, ctas: int, microseconds: int, ranks: int) -> None:
        self._ctas, self._nanoseconds, self._ranks = ctas, microseconds * 1000, ranks
        compiled: Any = torch.cuda._compile_kernel
        self._shared = torch.cuda.get_device_properties().shared_memory_per_block_optin  # type: ignore[attr-defined]
        self._kernels = {name: compiled(SOURCE, name) for name in ("gather", "reduce_scatter")}
        for kernel in self._kernels.values():
            kernel.set_shared_memory_config(self._shared)
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._ready: dict[tuple[int, ...], Tensor] = {}

    def gather(self, _: TensorGroup, part: Tensor) -> Pending:
        if not self._ctas:
            return self._at_once((part.shape[0] * self._ranks, *part.shape[1:]), part)
        part = part.contiguous()
        whole = part.new_empty(part.shape[0] * self._ranks, *part.shape[1:])
        self._stream.wait_stream(torch.cuda.current_stream())
        self._launch("gather", part, whole, part)
        return Pending(whole, Arrival(self._stream), part)

    def reduce_scatter(self, _: TensorGroup, terms: Tensor) -> Pending:
        shape = (terms.shape[0] // self._ranks, *terms.shape[1:])
        if not self._ctas:
            return self._at_once(shape, terms)
        part = terms.new_empty(shape)
        self._stream.wait_stream(torch.cuda.current_stream())
        self._launch("reduce_scatter", terms, part, part)
        return Pending(part, Arrival(self._stream), terms)

    def _launch(self, name: str, source: Tensor, target: Tensor, part: Tensor) -> None:
        arguments = [source, target, part.nbytes // 16, self._ranks, self._nanoseconds]
        self._kernels[name]((self._ctas, 1, 1), (THREADS, 1, 1), arguments, self._shared, self._stream)

    def _at_once(self, shape: tuple[int, ...], like: Tensor) -> Pending:
        """The same numbers at random each time."""
        if shape not in self._ready:
            self._ready[shape] = torch.randn(shape, device=like.device).to(like.dtype)
        return Pending(self._ready[shape])


def config_of(options: argparse.Namespace, micro_batches: int) -> RunConfig:
    system = dataclasses.replace(SYSTEMS[options.system], recompute=options.recompute)
    size = micro_batches * system.micro_batch_size * system.data_parallel
    benchmark = dataclasses.replace(GPT3_175B, global_batch_size=size, start_global_batch_size=size)
    return RunConfig(benchmark=benchmark, system=system, precision="bf16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", default="dgxh100_n64", choices=SYSTEMS)
    parser.add_argument("--stage", type=int, default=4, help="rank of the pipeline, from 0")
    parser.add_argument("--ctas", type=int, nargs="+", default=[0, 8, 16, 24, 0])
    parser.add_argument("--microseconds", type=int, default=300, help="that a message takes at least")
    parser.add_argument("--recompute", default="selective")
    options = parser.parse_args()
    config = config_of(options, FEW)
    system, model = config.system, config.benchmark.model
    set_environment(runtime_environment(config.system, deterministic=config.deterministic))
    torch.cuda.set_device(0)
    with fake_world(system, options.stage * system.data_parallel * system.tensor_parallel) as world:
        progress = starting_progress(config.benchmark, 0)
        state = empty_state(config.benchmark, config.system, config.precision, world, progress)
        for tensor in state.weights().values():
            _fill(tensor.to_local() if isinstance(tensor, DTensor) else tensor, matrix=tensor.dim() > 1)
        for group in state.pipeline._groups:
            for parameter in group._parameters:  # other ranks' shards, which never arrive
                _fill(parameter.value, matrix=parameter.value.dim() > 1)
        rows = model.seq_length // system.tensor_parallel * system.micro_batch_size
        hidden = torch.randn(rows, model.hidden_size, device=world.device).bfloat16()
        for way in (state.pipeline._exchange._on, state.pipeline._exchange._back):
            way._empty = lambda: hidden
        tokens = torch.randint(model.vocab_size, (system.micro_batch_size, model.seq_length))
        batch = MicroBatch(tokens, tokens.roll(-1, 1), torch.ones(tokens.shape)).pinned()

        def seconds(micro_batches: int) -> float:
            begin = event_now()
            state.pipeline.train([batch] * micro_batches, micro_batches)
            end = event_now()
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1000

        for number, ctas in enumerate(options.ctas):
            stand_in = StandInMessages(ctas, options.microseconds, system.tensor_parallel)
            with (
                mock.patch.object(TensorGroup, "gather", lambda *a, by=stand_in: by.gather(*a)),
                mock.patch.object(TensorGroup, "reduce_scatter", lambda *a, by=stand_in: by.reduce_scatter(*a)),
            ):
                if number == 0:
                    seconds(FEW)  # loads kernels
                gc.collect()
                few_s = seconds(FEW)
                each_s = (seconds(MANY) - few_s) / (MANY - FEW)
            print(
                f"{ctas:3} CTAs: {each_s * 1e3:7.2f} ms per micro-batch{_mfu(config, each_s, options.stage)}",
                flush=True,
            )


def _fill(tensor: Tensor, *, matrix: bool) -> None:
    """Matrices with numbers at random, biases and norms with zeros."""
    if matrix:
        tensor.normal_(0, 0.01)
    else:
        tensor.zero_()


def _mfu(config: RunConfig, each_s: float, stage: int) -> str:
    """Of a rank that has blocks alone."""
    system, model = config.system, config.benchmark.model
    if stage in (0, system.pipeline_parallel - 1) or system.peak_tflops is None:
        return ""
    of_blocks = part_flops_per_token(model, num_layers=model.num_layers // system.pipeline_parallel, output_columns=0)
    flops = of_blocks * system.micro_batch_size * model.seq_length / system.tensor_parallel
    return f", {flops / each_s / 1e12 / system.peak_tflops:.1%} of the peak"


if __name__ == "__main__":
    main()
