"""The passes of one rank of a system of hundreds, on one GPU, beside kernels that stand in for its messages.

python -m tests.speed.rank_on_gpu [--benchmark gpt3_175b] [--stage 4] [--ctas 0 8 16 24] [--precision fp8]

The true engine runs the rank's layers at their true size, in a world that exists in this process only (as in
host_time.py). Where the tensor-parallel ranks would send to each other, a kernel of N CTAs starts on a stream of its
own: it moves the bytes of the message within this GPU, takes at least so many microseconds, and fills the
multiprocessors it runs on. N = 0: what would arrive is there at once.

What is printed is the difference between steps of many and of few micro-batches over the difference of their numbers.
Not in it: waiting for other ranks, messages of largest values (FP8), between stages and data-parallel ranks, the norm,
Adam. A first stage and a last one read made-up tokens. The losses are wrong, for the other ranks' terms are missing.
"""

import argparse
import dataclasses
import gc
import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, get_args
from unittest import mock

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.number_formats import Precision
from benchmark.config.run_config import RunConfig
from benchmark.config.runtime_variables import runtime_environment
from benchmark.config.systems import DEFAULT_SYSTEM, SYSTEMS, system_called
from benchmark.planning.dry_run.tracker import Tracker
from benchmark.planning.fake_device.fake_world import fake_gpu_of, fake_world
from benchmark.planning.slice.device_rates import event_now
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.engine.distributed import World
from benchmark.training.engine.rank_environment import set_environment
from benchmark.training.engine.train_state import empty_state
from benchmark.training.training_world import settle_attention, settle_kernels
from model.decoder_sizes import Recompute
from model.flops import part_flops_per_token
from model.passes import end_passes
from model.passes.chunk_pass import MicroBatch
from model.passes.linear.fp8_kernels import VALUES
from model.passes.pass_sizes import LARGEST_PRODUCT
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
        self._ready: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}
        if not ctas:
            return
        compiled: Any = torch.cuda._compile_kernel
        self._shared = torch.cuda.get_device_properties().shared_memory_per_block_optin  # type: ignore[attr-defined]
        self._kernels = {name: compiled(SOURCE, name) for name in ("gather", "reduce_scatter")}
        for kernel in self._kernels.values():
            kernel.set_shared_memory_config(self._shared)
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

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
        """The same numbers at random each time; bytes are those of FP8 numbers."""
        key = shape, like.dtype
        if key not in self._ready:
            numbers, is_fp8 = torch.randn(shape, device=like.device), like.dtype == torch.uint8
            self._ready[key] = numbers.to(VALUES).view(torch.uint8) if is_fp8 else numbers.to(like.dtype)
        return Pending(self._ready[key])


def config_of(options: argparse.Namespace, micro_batches: int) -> RunConfig:
    benchmark = BENCHMARKS[options.benchmark]
    system = system_called(options.system or DEFAULT_SYSTEM[benchmark.name], benchmark.name)
    system = dataclasses.replace(
        system,
        recompute=options.recompute or system.recompute,
        compiled_kernels=not options.no_compiled_kernels,
        fp8_weight_gradients=options.fp8_weight_gradients,
    )
    size = micro_batches * system.micro_batch_size * system.data_parallel
    benchmark = dataclasses.replace(benchmark, global_batch_size=size, start_global_batch_size=size)
    config = RunConfig(benchmark=benchmark, system=system, precision=options.precision)
    config.require_fit()
    return config


def main() -> None:
    options = parsed_options()
    config = config_of(options, FEW)
    system = config.system
    stage = system.pipeline_parallel // 2 if options.stage is None else options.stage
    if not 0 <= stage < system.pipeline_parallel:
        sys.exit(f"error: --stage {stage}: expected 0 to {system.pipeline_parallel - 1}")
    if options.dry_run:
        options.ctas = [0]
    elif not torch.cuda.is_available():
        sys.exit(f"error: PyTorch {torch.__version__} sees no GPU; --dry-run runs the passes on tensors without memory")
    set_environment(runtime_environment(system, deterministic=config.deterministic))
    with ExitStack() as stack:
        gpu = stack.enter_context(fake_gpu_of(system)) if options.dry_run else None
        torch.cuda.set_device(0)
        world = stack.enter_context(fake_world(system, stage * system.data_parallel * system.tensor_parallel))
        if gpu is not None:
            names = world.mesh.mesh_dim_names or ()
            stack.enter_context(Tracker({world.mesh.get_group(axis).group_name: axis for axis in names}, gpu))
        measure(config, world, stage, options)


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="gpt3_175b", choices=DEFAULT_SYSTEM)
    parser.add_argument("--system", choices=SYSTEMS, help="by default the benchmark's")
    parser.add_argument("--stage", type=int, help="rank of the pipeline, from 0; by default in the middle")
    parser.add_argument("--ctas", type=int, nargs="+", default=[0, 8, 16, 24, 0])
    parser.add_argument("--microseconds", type=int, default=300, help="that a message takes at least")
    parser.add_argument("--recompute", choices=get_args(Recompute), help="by default the system's")
    parser.add_argument("--precision", default="bf16", choices=get_args(Precision))
    parser.add_argument("--no-fp8-weight-gradients", dest="fp8_weight_gradients", action="store_false")
    parser.add_argument("--no-compiled-kernels", action="store_true")
    parser.add_argument("--logits-mib", type=int, nargs="+", help="MiB of logits whose products are made at once")
    parser.add_argument("--dry-run", action="store_true", help="on tensors without memory: does it run? No times")
    return parser.parse_args()


def measure(config: RunConfig, world: World, stage: int, options: argparse.Namespace) -> None:
    system, model = config.system, config.benchmark.model
    if not options.dry_run:
        print(settle_attention(model, system, config.precision, world))
        print(settle_kernels(model, system, config.precision, world, deterministic=False), flush=True)
    progress = starting_progress(config.benchmark, 0)
    state = empty_state(config.benchmark, system, config.precision, world, progress)
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
        if options.dry_run:
            state.pipeline.train([batch] * micro_batches, micro_batches)
            return 0.0
        begin = event_now()
        state.pipeline.train([batch] * micro_batches, micro_batches)
        end = event_now()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    for number, (mib, ctas) in enumerate(itertools.product(options.logits_mib or [None], options.ctas)):
        with (
            stood_in_for(StandInMessages(ctas, options.microseconds, system.tensor_parallel)),
            mock.patch.object(end_passes, "LARGEST_PRODUCT", LARGEST_PRODUCT if mib is None else mib << 20),
        ):
            if number == 0:
                seconds(FEW)  # loads kernels
            gc.collect()
            few_s = seconds(FEW)
            each_s = (seconds(MANY) - few_s) / (MANY - FEW)
        logits = "" if mib is None else f", logits of {mib} MiB"
        if options.dry_run:
            print(f"the passes of stage {stage} run{logits}", flush=True)
            continue
        print(f"{ctas:3} CTAs{logits}: {each_s * 1e3:7.2f} ms per micro-batch{_mfu(config, each_s, stage)}", flush=True)


@contextmanager
def stood_in_for(messages: StandInMessages) -> Iterator[None]:
    """Send the group's two messages by ``messages``."""
    with (
        mock.patch.object(TensorGroup, "gather", lambda *arguments: messages.gather(*arguments)),
        mock.patch.object(TensorGroup, "reduce_scatter", lambda *arguments: messages.reduce_scatter(*arguments)),
    ):
        yield


def _fill(tensor: Tensor, *, matrix: bool) -> None:
    """Matrices with numbers at random, biases and norms with zeros."""
    if matrix and tensor.dtype.itemsize == 1:
        tensor.copy_(torch.randn(tensor.shape, device=tensor.device, dtype=torch.bfloat16))
    elif matrix:
        tensor.normal_(0, 0.01)
    else:
        tensor.zero_()


def _mfu(config: RunConfig, each_s: float, stage: int) -> str:
    """Of this rank's part of the model, in the peak of the run's number format."""
    system, model = config.system, config.benchmark.model
    peak_tflops = system.peak_tflops_in(config.precision)
    if peak_tflops is None:
        return ""
    columns = model.padded_vocab_size if stage == system.pipeline_parallel - 1 else 0
    per_token = part_flops_per_token(
        model, num_layers=model.num_layers // system.pipeline_parallel, output_columns=columns
    )
    flops = per_token * system.micro_batch_size * model.seq_length / system.tensor_parallel
    return f", {flops / each_s / 1e12 / peak_tflops:.1%} of the peak"


if __name__ == "__main__":
    main()
