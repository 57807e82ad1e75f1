"""Configure a run of a few layers of a benchmark on a few devices of this machine."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.number_formats import Precision
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import Collectives, System
from foundation.errors import InputError
from foundation.options.option_marks import OptionName, Positional, Unprefixed
from model.decoder_sizes import Recompute

ON_CPU = "--device cpu --hidden-size 512 --seq-length 256"
"""Options of a slice for a machine without a GPU."""
MICRO_BATCHES_PER_STAGE = 4
"""Micro-batches for each stage of a pipeline: enough to show the steady state of a full pipeline."""
MICRO_BATCHES = 8
"""Micro-batches of a step without a pipeline."""
PIPELINE_STAGES = 8
"""Pipeline stages of the benchmark's default system: none of its ranks has more than this share of the layers."""


@dataclass(frozen=True)
class SliceOptions:
    """Options of a slice."""

    benchmark: Annotated[Positional[str], OptionName(metavar="BENCHMARK")]
    """Benchmark whose layers run."""
    layers: int | None = None
    """Layers of all pipeline stages together; by default as many as fit, at most an eighth of the benchmark's on a
    device."""
    tensor_parallel: int = 1
    """Devices over which each layer is cut."""
    pipeline_parallel: int = 1
    """Devices among which the layers are divided."""
    pipeline_chunks: int = 1
    """Model chunks on each device (interleaving)."""
    data_parallel: int = 1
    """Devices, or groups of devices, that read different samples."""
    micro_batch_size: int = 1
    """Samples of a micro-batch."""
    micro_batches: int | None = None
    """Micro-batches of a step; by default 8, in a pipeline 4 for each stage."""
    steps: int = 5
    """Timed steps; 2 untimed steps come before them."""
    recompute: Recompute = "selective"
    """Part of a block that the backward pass computes again."""
    precision: Precision = "bf16"
    """Number format of the step, as of `train`. fp8: as bf16, with FP8 in the linear layers of the blocks; products are
    then timed in the formats that they have there, and MFU is of the FP8 peak."""
    fp8_weight_gradients: bool = True
    """Weight gradients of an FP8 step by FP8 products, not by BF16 products."""
    compiled_kernels: bool = True
    """Compile fused kernels on a GPU, as `train` does."""
    device: Literal["cuda", "cpu"] = "cuda"
    hidden_size: int | None = None
    """Hidden size instead of the benchmark's, for devices that cannot hold one layer; a multiple of the head size,
    which stays. Everything else that tensor parallelism cuts in width shrinks with it."""
    seq_length: int | None = None
    """Sequence length instead of the benchmark's."""
    output: Path = Path("runs/slice")
    """Folder for calibration.json and slice.json."""
    collectives: Unprefixed[Collectives] = field(default_factory=Collectives)
    tune_collectives: bool = False
    """Afterwards, time the step with each way to send messages between tensor-parallel GPUs, and write the fastest to
    system.toml there, for `train --system`."""
    profile: bool = False
    """Keep the profiler's trace of a step there too, for ui.perfetto.dev."""

    def __post_init__(self) -> None:
        if self.benchmark not in BENCHMARKS:
            raise InputError(f"unknown benchmark {self.benchmark!r}; there are {', '.join(BENCHMARKS)}")
        for name in ("layers", "micro_batches", "steps", "data_parallel", "hidden_size", "seq_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} {value}: expected at least 1; change --{name.replace('_', '-')}")

        of_benchmark = BENCHMARKS[self.benchmark].model.num_layers
        if self.layers is not None and self.layers > max(of_benchmark, self.least_layers):
            raise InputError(f"layers {self.layers}: expected at most {of_benchmark}, the benchmark's; change --layers")
        if self.tune_collectives and (self.device == "cpu" or self.tensor_parallel == 1):
            raise InputError(
                f"tune_collectives: {self.device}, tensor_parallel {self.tensor_parallel}: expected several GPUs; give "
                "--tensor-parallel, or leave --tune-collectives out"
            )

    @property
    def devices(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def true_width(self) -> bool:
        """True if the matrices have the benchmark's width."""
        return self.hidden_size in (None, BENCHMARKS[self.benchmark].model.hidden_size)

    @property
    def least_layers(self) -> int:
        """Return the fewest layers: one for each model chunk."""
        return self.pipeline_parallel * self.pipeline_chunks

    @property
    def most_layers(self) -> int:
        """Return the most layers: on each of the pipeline's devices as many as a rank of the whole benchmark has."""
        per_device = max(1, BENCHMARKS[self.benchmark].model.num_layers // PIPELINE_STAGES)
        return max(self.least_layers, per_device * self.pipeline_parallel)


def slice_config(options: SliceOptions, layers: int, accelerator: str) -> RunConfig:
    """Return the configuration of the run; raise InputError if the model cannot be divided among the devices."""
    system = System(
        name="slice",
        device=options.device,
        nodes=1,
        devices_per_node=options.devices,
        micro_batch_size=options.micro_batch_size,
        tensor_parallel=options.tensor_parallel,
        pipeline_parallel=options.pipeline_parallel,
        pipeline_chunks=options.pipeline_chunks,
        recompute=options.recompute,
        fp8_weight_gradients=options.fp8_weight_gradients,
        compiled_kernels=options.compiled_kernels,
        accelerator=accelerator,
        collectives=options.collectives,
    )
    config = RunConfig(benchmark=_benchmark(options, layers), system=system, precision=options.precision)
    config.require_fit()
    return config


def _benchmark(options: SliceOptions, layers: int) -> Benchmark:
    benchmark = BENCHMARKS[options.benchmark]
    hidden = options.hidden_size or benchmark.model.hidden_size
    head = benchmark.model.hidden_size // benchmark.model.num_attention_heads
    if hidden % (head * options.tensor_parallel):
        raise InputError(
            f"hidden_size {hidden}: expected a multiple of {head * options.tensor_parallel}, the size of a head for "
            "each tensor-parallel device; change --hidden-size or --tensor-parallel"
        )
    widths = {
        name: max(1, getattr(benchmark.model, name) * hidden // benchmark.model.hidden_size)
        for name in benchmark.model.cut_by_tensor_parallelism
        if name not in ("seq_length", "padded_vocab_size")
    }
    model = dataclasses.replace(
        benchmark.model,
        num_layers=layers,
        hidden_size=hidden,
        seq_length=options.seq_length or benchmark.model.seq_length,
        **widths,
    )
    usual = MICRO_BATCHES_PER_STAGE * options.pipeline_parallel if options.pipeline_parallel > 1 else MICRO_BATCHES
    size = (options.micro_batches or usual) * options.micro_batch_size * options.data_parallel
    return dataclasses.replace(benchmark, model=model, global_batch_size=size, start_global_batch_size=size)
