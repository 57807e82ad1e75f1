"""The command replay."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import tyro

SYSTEM_FIELDS = (
    "nodes",
    "devices_per_node",
    "device",
    "micro_batch_size",
    "tensor_parallel",
    "pipeline_parallel",
    "pipeline_chunks",
    "replicas",
    "recompute",
)
"""Options that replace fields of the system."""


@dataclass(frozen=True)
class ReplayCommand:
    """Train a stretch of a run again from its checkpoint, and compare with its evidence link by link: which step, which
    tensor, how far; and check that its log, its configuration and its checkpoint fit the evidence.

    Nothing in the folder is executed. To the bit where layout, device and versions are the run's, else with tolerances.

    Example: python -m benchmark replay runs/rehearsal/run_0 --steps 176:192

    Exit status: 0 every link holds, 1 one does not (the lines say which), 2 bad input.
    """

    run_dir: tyro.conf.Positional[Path]
    """Folder of a run that was trained with --evidence, or of its evidence in a package."""
    steps: str
    """FIRST:LAST, counted since the initial checkpoint. It starts from the newest checkpoint at or before FIRST."""
    checkpoint: Path | None = None
    """The initial checkpoint, where it is not where the run had it."""
    train_data_path: tuple[str, ...] = ()
    """Training data likewise: one dataset prefix, or weights and prefixes in turn."""
    valid_data_path: tuple[str, ...] = ()
    """Validation data likewise."""
    log: Path | None = None
    """The run's MLPerf log, where it is neither result_N.txt in its folder nor that of the package."""
    without_training: bool = False
    """Check samples, tokens and learning rates of the steps, the chain and the log: on one core, without checkpoint."""
    system: str | None = None
    """Another system of benchmark/config/systems.py than the run's."""
    nodes: int | None = None
    """Machines, in the place of the system's; the others likewise, as for train."""
    devices_per_node: int | None = None
    """Processes per machine."""
    device: Literal["cpu", "cuda"] | None = None
    """Kind of devices."""
    micro_batch_size: int | None = None
    """Samples per pass."""
    tensor_parallel: int | None = None
    """Devices that share each layer."""
    pipeline_parallel: int | None = None
    """Devices that each have some of the layers."""
    pipeline_chunks: int | None = None
    """Stages per device."""
    replicas: int | None = None
    """Copies of the sharded model."""
    recompute: Literal["none", "selective", "full"] | None = None
    """What is computed again in the backward pass."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.evidence.chain_links import numbers_as_json
        from benchmark.replay.recorded_config import Replacements
        from benchmark.replay.replay_result import format_replay
        from benchmark.replay.replay_run import ReplayOptions, replay
        from benchmark.training.engine.distributed import end_process

        layout = {name: getattr(self, name) for name in SYSTEM_FIELDS if getattr(self, name) is not None}
        given = Replacements(self.train_data_path, self.valid_data_path, self.checkpoint, self.system, layout)
        result = replay(ReplayOptions(self.run_dir, self.steps, given, self.log, self.without_training))
        if result is not None:  # on rank 0
            content = numbers_as_json({**asdict(result), "holds": result.holds})
            print(json.dumps(content) if self.json else format_replay(result))
        end_process(0 if result is None or result.holds else 1)
