"""The configuration of a run: a benchmark (model and target), a system (machines and layout), and the run's sections.

Benchmarks are listed in ``benchmarks.py``, systems in ``systems.py``; the command line overrides single fields.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmark.config.accelerators import require_fp8
from benchmark.config.benchmark_config import Benchmark
from benchmark.config.field_checks import divisors, listed, require_fp8_sizes, require_head_size
from benchmark.config.number_formats import DEFAULT_PRECISION, NUMBER_FORMATS, Precision
from benchmark.config.run_sections import DataOptions, DebugSwitches, GuardOptions, LoggingOptions, SaveOptions
from benchmark.config.system_config import System
from foundation.errors import InputError
from foundation.options.option_marks import Unprefixed


@dataclass(frozen=True)
class RunConfig:
    """One training run, in sections. A function takes the section that it needs; on the command line, where an option
    is called as its field, sections are not seen."""

    benchmark: Unprefixed[Benchmark]
    system: Unprefixed[System]
    run_dir: Path = Path("runs/run")
    """Folder for logs and checkpoints. A run that was interrupted there is continued."""
    result_number: int = 0
    """This run's number among those submitted: it names result_N.txt."""
    precision: Precision = DEFAULT_PRECISION
    """bf16: BF16 compute, FP32 master weights, moments, gradient accumulation and reduction. fp32: all FP32.
    fp8: as bf16, with FP8 in the linear layers of the blocks."""
    deterministic: bool = False
    """Use only kernels that give the same bits each time; on GPUs that costs speed."""
    time_limit_s: float | None = None
    """Save and stop after this many seconds."""
    data: Unprefixed[DataOptions] = field(default_factory=DataOptions)
    checkpoints: Unprefixed[SaveOptions] = field(default_factory=SaveOptions)
    guards: Unprefixed[GuardOptions] = field(default_factory=GuardOptions)
    logging: Unprefixed[LoggingOptions] = field(default_factory=LoggingOptions)
    debug: Unprefixed[DebugSwitches] = field(default_factory=DebugSwitches)

    def __post_init__(self) -> None:
        folder, names = self.data.data_folder, self.benchmark.token_files
        if folder is not None:
            share = str(1 / len(names.training))
            training = tuple(word for name in names.training for word in (share, str(folder / name)))
            if len(names.training) == 1:  # no blend, whose margin of half a percent can change the order
                training = (str(folder / names.training[0]),)
            validation = ("1.00", str(folder / names.validation))
            paths = (self.data.train_data_path or training, self.data.valid_data_path or validation)
            data = replace(self.data, train_data_path=paths[0], valid_data_path=paths[1], data_folder=None)
            object.__setattr__(self, "data", data)
        if self.result_number < 0:
            raise InputError(f"result_number {self.result_number}: expected 0 or more; change --result-number")
        if self.debug.for_gpus and self.system.device != "cuda":
            raise InputError(f"{', '.join(self.debug.for_gpus)}: system {self.system.name} has no GPU; leave it out")

    def require_fit(self) -> None:
        """Raise InputError when model or global batch cannot be dealt out to the devices, with sizes that can, or when
        no kernel of the devices takes the model's heads."""
        model, system = self.benchmark.model, self.system
        for name in model.cut_by_tensor_parallelism:
            size = getattr(model, name)
            if size % system.tensor_parallel:
                possible = [n for n in divisors(system.num_devices) if not size % n]
                raise InputError(
                    f"tensor_parallel {system.tensor_parallel} does not divide {name} {size}; possible: "
                    f"{listed(possible)}; change --tensor-parallel"
                )
        if system.num_pipeline_stages > model.num_layers:
            raise InputError(
                f"pipeline_parallel {system.pipeline_parallel} x pipeline_chunks {system.pipeline_chunks} are more "
                f"stages than the model's {model.num_layers} layers; lower --pipeline-parallel or --pipeline-chunks"
            )
        per_pass = system.micro_batch_size * system.data_parallel
        size = self.benchmark.global_batch_size
        if size % per_pass:
            near = max(per_pass, size // per_pass * per_pass)
            raise InputError(
                f"global_batch_size {size} is not a multiple of micro_batch_size {system.micro_batch_size} x "
                f"{system.data_parallel} data-parallel devices; use --global-batch-size {near} or {near + per_pass}, "
                "or another --micro-batch-size"
            )
        stages = system.pipeline_parallel
        if self.num_microbatches < stages:
            raise InputError(
                f"{self.num_microbatches} micro-batches per step and device do not fill a pipeline of {stages}, which "
                f"needs at least {stages}: use --global-batch-size {per_pass * stages} or a multiple of it, or another "
                "--micro-batch-size"
            )
        if system.device == "cuda":
            require_head_size(model, self.precision, system.tensor_parallel)
        if NUMBER_FORMATS[self.precision].product_bits == 8:
            require_fp8(system.accelerator)
            require_fp8_sizes(
                model,
                micro_batch_size=system.micro_batch_size,
                tensor_parallel=system.tensor_parallel,
                num_devices=system.num_devices,
            )

    def require_rates(self) -> None:
        """Raise InputError for a final learning rate that the benchmark's rules do not allow in the closed division."""
        optimizer, ratio = self.benchmark.optimizer, self.benchmark.peak_over_final_rate
        if ratio is None or self.logging.submission_division == "open":
            return
        if not math.isclose(optimizer.min_lr * ratio, optimizer.lr, rel_tol=1e-6):
            raise InputError(
                f"min_lr {optimizer.min_lr:g}: the rules of {self.benchmark.name} ask for 1/{ratio:g} of lr "
                f"{optimizer.lr:g}, which is {optimizer.lr / ratio:g}; leave --min-lr out, or add "
                "--submission-division open"
            )

    @property
    def num_microbatches(self) -> int:
        return self.system.num_microbatches(self.benchmark.global_batch_size)

    def banner(self, seed: int) -> Iterator[str]:
        """Yield the lines that a person reads before hours of computing. ``seed``: of the data order."""
        benchmark, system, data = self.benchmark, self.system, self.data
        target = benchmark.target_log_perplexity
        goal = "all samples" if target is None else f"to log perplexity {target}"
        title = NUMBER_FORMATS[self.precision].title
        yield f"{benchmark.name} in {title}, {goal}, global batch size {benchmark.global_batch_size:,}"
        devices = f"{system.nodes} x {system.devices_per_node} {system.accelerator or system.device}"
        stages = f"{system.pipeline_parallel} x {system.pipeline_chunks}"
        yield (
            f"{system.name}: {devices}, tensor parallel {system.tensor_parallel}, pipeline parallel {stages}, "
            f"data parallel {system.data_parallel}, micro-batch size {system.micro_batch_size}"
        )
        rates = benchmark.optimizer
        yield f"learning rate {rates.lr:g} to {rates.min_lr:g}, warm-up of {rates.lr_warmup_samples:,} samples"
        yield f"training data {' '.join(data.train_data_path)}"
        yield f"validation data {' '.join(data.valid_data_path)}"
        default = "of the run itself" if benchmark.start_iterations else "none but the run's own"
        yield f"checkpoint {data.checkpoint or default}"
        yield f"run folder {self.run_dir}, seed {seed}"
