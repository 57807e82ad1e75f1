"""The sections of a run's configuration beside benchmark and system: data, checkpoints, guards, logging, debugging."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmark.config.field_checks import listed, require_seed
from foundation.errors import InputError


@dataclass(frozen=True)
class DataOptions:
    """Options of the data and of the checkpoint that a run reads."""

    train_data_path: tuple[str, ...] = ()
    """Training data: one dataset prefix, or weights and prefixes in turn."""
    valid_data_path: tuple[str, ...] = ()
    """Validation data, likewise; evaluated whole."""
    checkpoint: Path | None = None
    """Initial checkpoint in the Megatron zarr layout."""
    seed: int | None = None
    """Seed of the data order; drawn from the system's randomness unless given, and kept when a run continues."""
    data_folder: Path | None = None
    """Folder with the benchmark's token files under their published names, for the data paths that are not given."""

    def __post_init__(self) -> None:
        if self.seed is not None:
            require_seed(self.seed)


@dataclass(frozen=True)
class SaveOptions:
    """The run's own checkpoints: when they are written, which are kept, which one it goes on from."""

    save_interval: int | None = None
    """Steps between checkpoints; 0 saves none, whatever asks for one. None: by time (--save-minutes)."""
    save_minutes: float | None = None
    """Minutes between checkpoints. None: derived from the cost of a save and the rate of failures."""
    save_at: tuple[int, ...] = ()
    """Save after these steps too, counted since the initial checkpoint as in the names of checkpoints."""
    resume_from: int | None = None
    """Go on from the checkpoint of that many steps; newer ones are set aside. Once: a restart by the launcher, or a
    requeued job, goes on from its newest."""
    keep_checkpoints: int = 2
    """Newest checkpoints to keep."""
    keep_every: int = 0
    """Steps; checkpoints at multiples of it are kept for good. 0: none."""
    after_checkpoint: str = ""
    """Program and words, started beside training after each checkpoint; it finds CHECKPOINT_DIR, CHECKPOINT_STEPS,
    RUN_DIR and more in its environment."""

    def __post_init__(self) -> None:
        if self.save_interval is not None and self.save_interval < 0:
            raise InputError(f"save_interval {self.save_interval}: expected steps, or 0 for no checkpoints")
        if self.keep_checkpoints < 1:
            raise InputError(
                f"keep_checkpoints {self.keep_checkpoints}: expected at least 1; change --keep-checkpoints"
            )
        if self.save_minutes is not None and (self.save_minutes <= 0 or self.save_interval is not None):
            raise InputError(f"save_minutes {self.save_minutes}: expected more than 0, and no --save-interval")
        if self.save_at and (min(self.save_at) < 1 or not self.saves):
            mend = "change --save-at" if self.saves else "leave --save-interval 0 out"
            raise InputError(f"save_at {listed(list(self.save_at))}: expected steps from 1 on; {mend}")
        try:
            words = shlex.split(self.after_checkpoint)
        except ValueError as error:
            raise InputError(
                f"after_checkpoint {self.after_checkpoint}: {error}; quote its words as a shell would, in "
                "--after-checkpoint"
            ) from None
        if self.after_checkpoint and not words:
            raise InputError("after_checkpoint: no program; give one with --after-checkpoint, or leave it out")

    @property
    def saves(self) -> bool:
        """True if the run writes checkpoints."""
        return self.save_interval != 0


@dataclass(frozen=True)
class GuardOptions:
    """Options of the observers that watch a run."""

    audit_interval: int = 100
    """Steps between audits of the replicas: what several devices hold must be the same to the bit. 0: never."""
    speed_interval: int = 2
    """Steps between comparisons of how fast the ranks compute; 0: none."""
    watchdog: bool = True
    """Have every process watched: a process that hangs is killed, and says where
    (benchmark/training/liveness/watchdog.py)."""

    def __post_init__(self) -> None:
        if self.speed_interval < 0:
            raise InputError(f"speed_interval {self.speed_interval}: expected at least 0; change --speed-interval")


@dataclass(frozen=True)
class LoggingOptions:
    """Options of the logs, and of the names that a submission carries."""

    evidence: bool = False
    """Write RUN_DIR/evidence.jsonl: a chain of records with a fingerprint of all weights after every step, by which
    `replay` can check any stretch of the run."""
    log_interval: int = 1
    """Steps between lines on the console; events.jsonl has every step."""
    tensorboard: bool = False
    """Write scalars for TensorBoard to RUN_DIR/tensorboard; needs tensorboardX."""
    wandb: Literal["off", "online", "offline"] = "off"
    """Send the run to Weights & Biases, or write to RUN_DIR/wandb what `wandb sync` sends; needs wandb."""
    prometheus_textfile: Path | None = None
    """File *.prom in the folder that Prometheus' node exporter reads on the machine of rank 0; kept current."""
    cache_cleared: bool = False
    """The page cache was dropped before the run, as run_gpt3.sh tries to; logged as cache_clear."""
    submission_org: str = "reference"
    """Organisation that submits, for the MLPerf log."""
    submission_division: Literal["closed", "open"] = "closed"
    submission_status: Literal["onprem", "cloud", "preview", "research"] = "research"

    def __post_init__(self) -> None:
        if not self.submission_org.strip():
            raise InputError("submission_org is empty: expected an organisation's name; change --submission-org")
        if self.prometheus_textfile is not None and self.prometheus_textfile.suffix != ".prom":
            raise InputError(
                f"prometheus_textfile {self.prometheus_textfile}: the collector reads files *.prom only; change "
                "--prometheus-textfile"
            )


@dataclass(frozen=True)
class DebugSwitches:
    """Switches that let a person see inside a run (docs/debugging.md). Each costs nothing while it is off."""

    profile: str | None = None
    """FIRST:LAST, steps: write a Chrome trace of each to RUN_DIR/profile."""
    profile_ranks: tuple[int, ...] = (0,)
    """Ranks that --profile traces."""
    nvtx: bool = False
    """Name phases and steps for NVIDIA's nsys; with --profile it records those steps alone, and no trace is written."""
    nccl_debug: Literal["WARN", "INFO", "TRACE"] | None = None
    """NCCL's log, a file for each process in RUN_DIR/attempts."""
    memory_snapshot: bool = False
    """Write down who holds the memory of a GPU that runs out of it, in RUN_DIR/attempts."""

    def __post_init__(self) -> None:
        steps = self.profiled_steps
        if steps is not None and not 0 < steps[0] <= steps[1]:
            raise InputError(f"profile {self.profile}: expected FIRST:LAST, 1 <= FIRST <= LAST, such as 10:12")
        if any(rank < 0 for rank in self.profile_ranks):
            raise InputError(f"profile_ranks {self.profile_ranks}: expected 0 or more; change --profile-ranks")

    @property
    def profiled_steps(self) -> tuple[int, int] | None:
        """The first and the last."""
        if self.profile is None:
            return None
        match = re.fullmatch(r"(\d{1,12}):(\d{1,12})", self.profile)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def for_gpus(self) -> list[str]:
        """Switches that are on and do nothing without a GPU."""
        on = {"--nvtx": self.nvtx, "--nccl-debug": self.nccl_debug, "--memory-snapshot": self.memory_snapshot}
        return [name for name, value in on.items() if value]
