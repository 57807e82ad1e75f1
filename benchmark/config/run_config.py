"""The configuration of a run: a benchmark (what is trained, to which target), a system (on what), and this run's own.

Benchmarks are listed in ``benchmarks.py``, systems in ``systems.py``; the command line overrides single fields.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from benchmark.config.field_checks import divisors, listed, require_head_size, require_positive
from benchmark.config.run_sections import DataOptions, DebugSwitches, GuardOptions, LoggingOptions, SaveOptions
from benchmark.config.system_config import System
from foundation.errors import InputError
from model.decoder_sizes import DecoderSizes

CONFIG_FILENAME = "config.json"
"""File of a run's folder with its resolved configuration; the MLPerf log names it, and ``package`` takes it along."""
Precision = Literal["bf16", "fp32"]


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam with decoupled weight decay, and the learning rate in samples since step 0 (docs/facts/reference.md e)."""

    lr: float
    """Peak learning rate."""
    min_lr: float
    """Final learning rate; 10 % of the peak by the rules, but not derived from it."""
    lr_warmup_samples: int
    """Linear warm-up."""
    lr_decay_samples: int
    """End of the cosine."""
    lr_schedule: tyro.conf.Suppress[Literal["samples", "steps"]] = "samples"
    """Rule of the learning rate: ``samples`` is Megatron's, 0 in the first step of a warm-up; ``steps`` is NeMo's,
    whose first step has 1 / (warm-up steps + 1) of the peak (docs/facts/llama31_8b.md 2)."""
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    adam_eps: float = 1e-8
    """Added outside the square root, after bias correction."""
    weight_decay: float = 0.1
    """Decoupled weight decay of the parameters that ``decays_vectors`` names."""
    decays_vectors: tyro.conf.Suppress[bool] = True
    """Weight decay applies to every parameter, biases and norms too; if False, to matrices alone
    (docs/facts/llama31_8b.md 9.2)."""
    clip_grad: float = 1.0
    """Largest global L2 norm of the gradient."""

    def __post_init__(self) -> None:
        if not 0 <= self.lr_warmup_samples < self.lr_decay_samples:
            raise InputError(
                f"lr_warmup_samples {self.lr_warmup_samples} and lr_decay_samples {self.lr_decay_samples}: expected "
                "0 <= warm-up < decay; change --lr-warmup-samples or --lr-decay-samples"
            )
        if not 0 <= self.min_lr <= self.lr:
            raise InputError(f"min_lr {self.min_lr} and lr {self.lr}: expected 0 <= min_lr <= lr; change --min-lr")


@dataclass(frozen=True)
class LogKeys:
    """Names that a benchmark's rules use in the MLPerf log; the defaults are GPT-3's."""

    optimizer: str = "adam"
    """``opt_name``, and part of the names of the optimizer's keys."""
    weight_decay: str = "opt_weight_decay"
    progress: Literal["epoch_num", "samples_count"] = "epoch_num"
    """Metadata key of the progress of training: ``epoch_num`` counts tokens, ``samples_count`` samples."""


@dataclass(frozen=True)
class TokenFiles:
    """Names of a benchmark's datasets in their folder, without ``.bin`` and ``.idx``."""

    training: tuple[str, ...]
    """Sets of equal weight."""
    validation: str


@dataclass(frozen=True)
class ReferenceRate:
    """The learning rate of an official reference point."""

    global_batch_size: int
    lr: float
    """Peak learning rate."""
    lr_warmup_samples: int

    @property
    def words(self) -> str:
        """Return the options that choose the rate at another batch size."""
        return f"--lr {self.lr:g} --lr-warmup-samples {self.lr_warmup_samples}"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark names the model, the point where training begins, and the quality to reach."""

    name: tyro.conf.Suppress[str]
    mlperf_name: tyro.conf.Suppress[str]
    """``submission_benchmark`` of the MLPerf log."""
    model: DecoderSizes
    optimizer: OptimizerConfig
    token_files: tyro.conf.Suppress[TokenFiles]
    """Names of a benchmark's datasets in the folder of --data-folder."""
    global_batch_size: int
    """Samples per optimizer step."""
    start_iterations: int
    """Steps that the initial checkpoint was trained for; 0: weights are drawn from the seed."""
    start_global_batch_size: int
    """Global batch size of those steps; the product of the two is the sample where schedule and data begin."""
    train_samples: int
    """Samples from step 0 to the end of training, those of the initial checkpoint included."""
    eval_interval_samples: int
    """Samples between evaluations, rounded up to whole steps."""
    target_log_perplexity: float | None
    """Stop when the validation log perplexity (nats per token) is at or below this; None: train all samples."""
    max_steps: int | None = None
    """Steps at which the cosine ends, in whatever batch size; it then sets lr_decay_samples. None: it does not."""
    evaluation_sequences: int | None = None
    """Windows of the validation set that an evaluation scores, the first of its file; None: all of them."""
    labels_last_token: tyro.conf.Suppress[bool] = False
    """A window has one token more than the sequence, so that the last position has a label too
    (docs/facts/llama31_8b.md 9.1)."""
    log_keys: tyro.conf.Suppress[LogKeys] = LogKeys()
    initial_log_perplexity: tyro.conf.Suppress[tuple[float, float] | None] = None
    """Mean and standard deviation over runs of what the initial checkpoint must evaluate to."""
    reference_rates: tyro.conf.Suppress[tuple[ReferenceRate, ...]] = ()
    """Learning rates of the official reference points, by ascending batch size."""
    peak_over_final_rate: tyro.conf.Suppress[float | None] = None
    """Peak over final learning rate where the rules fix it; None: both are free."""
    samples_to_target: tyro.conf.Suppress[tuple[tuple[int, int], ...]] = ()
    """Global batch sizes, ascending, and the samples that reference runs took on average to reach the target with
    them; empty where that is not known."""

    def __post_init__(self) -> None:
        require_positive(self, "global_batch_size", "start_global_batch_size", "eval_interval_samples")
        require_positive(
            self, *(one for one in ("max_steps", "evaluation_sequences") if getattr(self, one) is not None)
        )
        if self.max_steps is not None:
            end = self.max_steps * self.global_batch_size
            object.__setattr__(self, "optimizer", replace(self.optimizer, lr_decay_samples=end))
        if self.last_iteration <= self.start_iteration:
            raise InputError(
                f"train_samples {self.train_samples} end at step {self.last_iteration}, not after the initial "
                f"checkpoint's {self.start_iteration}; raise --train-samples"
            )

    def at_batch_size(self, size: float | None) -> "Benchmark":
        """Return the benchmark with the learning rate of its reference point at a batch size, if it has one there."""
        for rate in self.reference_rates:
            if rate.global_batch_size == size:
                optimizer = replace(self.optimizer, lr=rate.lr, lr_warmup_samples=rate.lr_warmup_samples)
                sized = replace(self, global_batch_size=rate.global_batch_size, optimizer=optimizer)
                return sized.at_peak_rate(rate.lr)
        return self

    def at_peak_rate(self, lr: float | None) -> "Benchmark":
        """Return the benchmark with the final learning rate that belongs to a peak, where the rules fix it."""
        if lr is None or self.peak_over_final_rate is None or not lr > 0:
            return self
        min_lr = float(f"{lr / self.peak_over_final_rate:.12g}")  # 6e-05, not 5.9999999999999995e-05
        return replace(self, optimizer=replace(self.optimizer, lr=lr, min_lr=min_lr))

    def require_reference_rate(self, size: float) -> None:
        """Raise InputError, with the neighbouring reference points, for a batch size that has none."""
        sizes = [rate.global_batch_size for rate in self.reference_rates]
        if not sizes or size in sizes:
            return
        below = [rate for rate in self.reference_rates if rate.global_batch_size < size][-1:]
        above = [rate for rate in self.reference_rates if rate.global_batch_size > size][:1]
        neighbours = "; ".join(f"{rate.global_batch_size} has {rate.words}" for rate in (*below, *above))
        raise InputError(
            f"global_batch_size {size:g}: {self.name} has reference points at {listed(sizes)} only ({neighbours}); "
            "give both --lr and --lr-warmup-samples"
        )

    @property
    def start_samples(self) -> int:
        """Samples consumed at the start: 6,144,000 for the 175B benchmark (docs/facts/reference.md b.6)."""
        return self.start_iterations * self.start_global_batch_size

    @property
    def start_iteration(self) -> int:
        """Iteration the run starts at, in steps of its own batch size, rounded down (docs/facts/reference.md f.4)."""
        return self.start_samples // self.global_batch_size

    @property
    def last_iteration(self) -> int:
        return self.train_samples // self.global_batch_size

    @property
    def expected_steps(self) -> int:
        """Optimizer steps that a run is expected to take to its target: those of reference runs, between their batch
        sizes interpolated; all there are where there is no target, or nothing is known."""
        most = self.last_iteration - self.start_iteration
        if self.target_log_perplexity is None or not self.samples_to_target:
            return most
        sizes, samples = zip(*self.samples_to_target, strict=True)
        return min(most, math.ceil(float(np.interp(self.global_batch_size, sizes, samples)) / self.global_batch_size))

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch_size * self.model.seq_length

    @property
    def eval_interval(self) -> int:
        """Steps between evaluations."""
        return math.ceil(self.eval_interval_samples / self.global_batch_size)


@dataclass(frozen=True)
class RunConfig:
    """One training run, in sections. A function takes the section that it needs; on the command line, where an option
    is called as its field, sections are not seen."""

    benchmark: tyro.conf.OmitArgPrefixes[Benchmark]
    system: tyro.conf.OmitArgPrefixes[System]
    run_dir: Path = Path("runs/run")
    """Folder for logs and checkpoints. A run that was interrupted there is continued."""
    result_number: int = 0
    """This run's number among those submitted: it names result_N.txt."""
    precision: Precision = "bf16"
    """bf16: BF16 compute, FP32 master weights, moments, gradient accumulation and reduction. fp32: all FP32."""
    deterministic: bool = False
    """Use only kernels that give the same bits each time; on GPUs that costs speed."""
    time_limit_s: float | None = None
    """Save and stop after this many seconds."""
    data: tyro.conf.OmitArgPrefixes[DataOptions] = field(default_factory=DataOptions)
    checkpoints: tyro.conf.OmitArgPrefixes[SaveOptions] = field(default_factory=SaveOptions)
    guards: tyro.conf.OmitArgPrefixes[GuardOptions] = field(default_factory=GuardOptions)
    logging: tyro.conf.OmitArgPrefixes[LoggingOptions] = field(default_factory=LoggingOptions)
    debug: tyro.conf.OmitArgPrefixes[DebugSwitches] = field(default_factory=DebugSwitches)

    def __post_init__(self) -> None:
        folder, names = self.data.data_folder, self.benchmark.token_files
        if folder is not None:
            share = str(1 / len(names.training))
            training = tuple(word for name in names.training for word in (share, str(folder / name)))
            validation = ("1.00", str(folder / names.validation))
            paths = (self.data.train_data_path or training, self.data.valid_data_path or validation)
            data = replace(self.data, train_data_path=paths[0], valid_data_path=paths[1], data_folder=None)
            object.__setattr__(self, "data", data)
        if self.debug.for_gpus and self.system.device != "cuda":
            raise InputError(f"{', '.join(self.debug.for_gpus)}: system {self.system.name} has no GPU; leave it out")

    def changed(self, **fields: Any) -> "RunConfig":
        """Return a copy in which the given fields have other values, whichever section they stand in."""
        sections: dict[str, Any] = {}
        for section in ("data", "checkpoints", "guards", "logging"):
            own = getattr(self, section)
            its = {name: fields.pop(name) for name in list(fields) if hasattr(own, name)}
            sections[section] = replace(own, **its)
        return replace(self, **sections, **fields)

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
        yield f"{benchmark.name} in {self.precision.upper()}, {goal}, global batch size {benchmark.global_batch_size:,}"
        devices = f"{system.nodes} x {system.devices_per_node} {system.accelerator or system.device}"
        stages = f"{system.pipeline_parallel} x {system.pipeline_chunks}"
        yield (
            f"{system.name}: {devices}, tensor parallel {system.tensor_parallel}, pipeline parallel {stages}, "
            f"data parallel {system.data_parallel}, micro-batch size {system.micro_batch_size}"
        )
        rates = benchmark.optimizer
        yield f"learning rate {rates.lr:g} to {rates.min_lr:g}, warm-up of {rates.lr_warmup_samples:,} samples"
        yield f"data {' '.join(data.train_data_path)}, evaluated on {' '.join(data.valid_data_path)}, seed {seed}"
        own = "of the run itself" if benchmark.start_iterations else "none, or of the run itself"
        yield f"checkpoint {data.checkpoint or own}, run folder {self.run_dir}"
