"""The configuration of a run: a benchmark (what is trained, to which target), a system (on what), and this run's own.

Benchmarks are listed in ``benchmarks.py``, systems in ``systems.py``; the command line overrides single fields.
"""

import math
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from benchmark.config.debug_switches import DebugSwitches
from benchmark.config.field_checks import divisors, listed, require_positive, require_seed
from benchmark.config.head_sizes import require_head_size
from benchmark.config.system_config import System
from model.gpt3_config import GPT3Config
from stage.errors import InputError

OnSpike = Literal["note", "stop", "skip-data", "lower-rate"]
ROLLBACKS: tuple[OnSpike, ...] = ("skip-data", "lower-rate")
"""What changes how the run learns."""


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
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    adam_eps: float = 1e-8
    """Added outside the square root, after bias correction."""
    weight_decay: float = 0.1
    """On every parameter, biases and LayerNorms too."""
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
class Benchmark:
    """What is trained, from where, and to which quality."""

    name: tyro.conf.Suppress[str]
    mlperf_name: tyro.conf.Suppress[str]
    """``submission_benchmark`` of the MLPerf log."""
    model: GPT3Config
    optimizer: OptimizerConfig
    global_batch_size: int
    """Samples per optimizer step."""
    start_iterations: int
    """Steps the initial checkpoint was trained for …"""
    start_global_batch_size: int
    """… at this global batch size; their product is where schedule and data begin."""
    train_samples: int
    """Samples from step 0 to the end of training, those of the initial checkpoint included."""
    eval_interval_samples: int
    """Samples between evaluations, rounded up to whole steps."""
    target_log_perplexity: float | None
    """Stop when the validation log perplexity (nats per token) is at or below this; None: train all samples."""
    initial_log_perplexity: tyro.conf.Suppress[tuple[float, float] | None] = None
    """Mean and standard deviation over runs of what the initial checkpoint must evaluate to."""
    samples_to_target: tyro.conf.Suppress[tuple[tuple[int, int], ...]] = ()
    """Global batch sizes, ascending, and the samples that reference runs took on average to reach the target with
    them; empty where that is not known."""

    def __post_init__(self) -> None:
        require_positive(self, "global_batch_size", "start_global_batch_size", "eval_interval_samples")
        if self.last_iteration <= self.start_iteration:
            raise InputError(
                f"train_samples {self.train_samples} end at step {self.last_iteration}, not after the initial "
                f"checkpoint's {self.start_iteration}; raise --train-samples"
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
    def eval_interval(self) -> int:
        """Steps between evaluations."""
        return math.ceil(self.eval_interval_samples / self.global_batch_size)


@dataclass(frozen=True)
class Submission:
    """Who submits, for the MLPerf log."""

    submission_org: str = "reference"
    submission_division: Literal["closed", "open"] = "closed"
    submission_status: Literal["onprem", "cloud", "preview", "research"] = "research"


@dataclass(frozen=True)
class RunConfig:
    """One training run."""

    benchmark: tyro.conf.OmitArgPrefixes[Benchmark]
    system: tyro.conf.OmitArgPrefixes[System]
    train_data_path: tuple[str, ...] = ()
    """Training data: one dataset prefix, or weights and prefixes in turn."""
    valid_data_path: tuple[str, ...] = ()
    """Validation data, likewise; evaluated whole."""
    checkpoint: Path | None = None
    """Initial checkpoint in the Megatron zarr layout."""
    run_dir: Path = Path("runs/run")
    """Folder for logs and checkpoints. A run that was interrupted there is continued."""
    result_number: int = 0
    """This run's number among those submitted: it names result_N.txt."""
    seed: int | None = None
    """Seed of the data order; drawn from the system's randomness unless given, and kept when a run continues."""
    precision: Literal["bf16", "fp32"] = "bf16"
    """bf16: BF16 compute, FP32 master weights, moments, gradient accumulation and reduction. fp32: all FP32."""
    deterministic: bool = False
    """Use only kernels that give the same bits each time (docs/training.md); on GPUs that costs speed."""
    save_interval: int | None = None
    """Steps between checkpoints; 0 saves none, whatever asks for one. None: by time (--save-minutes)."""
    save_minutes: float | None = None
    """Minutes between checkpoints. None: derived from what a save costs and how often such systems fail."""
    save_at: tuple[int, ...] = ()
    """Save after these steps too, counted since the initial checkpoint as in the names of checkpoints."""
    resume_from: int | None = None
    """Go on from the checkpoint of that many steps; newer ones are set aside. Once: a restart by the launcher, or a
    requeued job, goes on from its newest."""
    keep_checkpoints: int = 2
    """Newest checkpoints to keep."""
    keep_every: int = 0
    """Steps; checkpoints at multiples of it are kept for good. 0: none."""
    audit_interval: int = 100
    """Steps between audits of the replicas: what several devices hold must be the same to the bit. 0: never."""
    evidence: bool = False
    """Write RUN_DIR/evidence.jsonl: a chain of links with fingerprints of samples, tokens and weights of every step, by
    which `replay` can check any stretch of the run (docs/evidence.md)."""
    on_spike: OnSpike = "note"
    """When loss or gradient norm spike: note it; stop, saving; or go back to the checkpoint before it and leave out the
    samples since (skip-data) or learn more slowly for a while (lower-rate). The last two in the open division only."""
    spike_rate_factor: float = 0.5
    """For lower-rate: what the learning rate is multiplied by ..."""
    spike_rate_steps: int = 100
    """... for so many steps from the checkpoint on."""
    time_limit_s: float | None = None
    """Save and stop after this many seconds."""
    log_interval: int = 1
    """Steps between lines on the console; events.jsonl has every step."""
    watchdog: bool = True
    """Have every process watched: one that hangs is killed, and says where (benchmark/launch/watchdog.py)."""
    speed_interval: int = 2
    """Steps between comparisons of how fast the ranks compute; 0: none."""
    tensorboard: bool = False
    """Write scalars for TensorBoard to RUN_DIR/tensorboard; needs tensorboardX."""
    wandb: Literal["off", "online", "offline"] = "off"
    """Send the run to Weights & Biases, or write to RUN_DIR/wandb what `wandb sync` sends; needs wandb."""
    prometheus_textfile: Path | None = None
    """File *.prom in the folder that Prometheus' node exporter reads on the machine of rank 0; kept current."""
    after_checkpoint: str = ""
    """Program and words, started beside training after each checkpoint; it finds CHECKPOINT_DIR, CHECKPOINT_STEPS,
    RUN_DIR and more in its environment (docs/telemetry.md)."""
    cache_cleared: bool = False
    """Whether the page cache was dropped before the run, as run_gpt3.sh tries to; logged as cache_clear."""
    debug: tyro.conf.OmitArgPrefixes[DebugSwitches] = field(default_factory=DebugSwitches)
    submission: tyro.conf.OmitArgPrefixes[Submission] = field(default_factory=Submission)

    def __post_init__(self) -> None:
        if self.seed is not None:
            require_seed(self.seed)
        if self.save_interval is not None and self.save_interval < 0:
            raise InputError(f"save_interval {self.save_interval}: expected steps, or 0 for no checkpoints")
        if self.save_minutes is not None and (self.save_minutes <= 0 or self.save_interval is not None):
            raise InputError(f"save_minutes {self.save_minutes}: expected more than 0, and no --save-interval")
        if self.save_at and (min(self.save_at) < 1 or not self.saves):
            raise InputError(f"save_at {listed(list(self.save_at))}: expected steps from 1 on, not --save-interval 0")
        if self.prometheus_textfile is not None and self.prometheus_textfile.suffix != ".prom":
            raise InputError(
                f"prometheus_textfile {self.prometheus_textfile}: the collector reads files *.prom only; change "
                "--prometheus-textfile"
            )
        try:
            words = shlex.split(self.after_checkpoint)
        except ValueError as error:
            raise InputError(
                f"after_checkpoint {self.after_checkpoint}: {error}; quote its words as a shell would, in "
                "--after-checkpoint"
            ) from None
        if self.after_checkpoint and not words:
            raise InputError("after_checkpoint: no program; give one with --after-checkpoint, or leave it out")
        if self.speed_interval < 0:
            raise InputError(f"speed_interval {self.speed_interval}: expected at least 0; change --speed-interval")
        if self.debug.for_gpus and self.system.device != "cuda":
            raise InputError(f"{', '.join(self.debug.for_gpus)}: system {self.system.name} has no GPU; leave it out")
        self._require_allowed_on_spike()

    def _require_allowed_on_spike(self) -> None:
        if self.on_spike in ROLLBACKS and self.submission.submission_division == "closed":
            raise InputError(
                f"on_spike {self.on_spike}: the closed division allows neither other data nor another learning rate; "
                "use --on-spike note or stop, or --submission-division open"
            )
        if not 0 < self.spike_rate_factor <= 1:
            raise InputError(f"spike_rate_factor {self.spike_rate_factor}: expected above 0, at most 1")
        require_positive(self, "spike_rate_steps")

    def require_fit(self) -> None:
        """Raise InputError when model or global batch cannot be dealt out to the devices, with sizes that can, or when
        no kernel of the devices takes the model's heads."""
        model, system = self.benchmark.model, self.system
        for name in ("num_attention_heads", "seq_length", "padded_vocab_size"):
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

    @property
    def saves(self) -> bool:
        """Whether the run writes checkpoints."""
        return self.save_interval != 0

    @property
    def num_microbatches(self) -> int:
        """Micro-batches per step and device: the gradient accumulation steps."""
        return self.benchmark.global_batch_size // (self.system.micro_batch_size * self.system.data_parallel)

    @property
    def tokens_per_step(self) -> int:
        return self.benchmark.global_batch_size * self.benchmark.model.seq_length
