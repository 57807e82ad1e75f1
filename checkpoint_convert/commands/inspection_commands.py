"""Commands that look into checkpoints: inspect, compare."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from foundation.options.option_marks import Positional
from foundation.this_machine import count_cores


@dataclass(frozen=True)
class InspectCheckpointCommand:
    """Show shape, dtype, chunks and figures of the values of every array of a checkpoint of any format.

    Example: python -m checkpoint_convert inspect ckpt4000_bf16 --array "layernorm*bias"
    """

    checkpoint: Positional[Path]
    """PAXML zarr, Megatron zarr, PyTorch distributed checkpoint, or safetensors: a folder, or one .safetensors file."""
    array: str = ""
    """Show only arrays whose name contains this shell pattern."""
    md5: bool = False
    """Add the MD5 of each array's values in C order, little-endian."""
    workers: int = count_cores()
    """Blocks read at the same time."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        from checkpoint_convert.inspection.inspect_checkpoint import (
            format_checkpoint_report,
            inspect_checkpoint,
            require_all_chunks,
        )

        report = inspect_checkpoint(self.checkpoint, self.array, md5=self.md5, workers=self.workers)
        print(json.dumps(asdict(report), indent=1) if self.json else format_checkpoint_report(report))
        require_all_chunks(report)


@dataclass(frozen=True)
class CompareCheckpointsCommand:
    """Compare two checkpoints value by value; a PAXML one with a Megatron one as the conversion maps them.

    Exit status 0: the same; 1: they differ, and the output says where. Example: python -m checkpoint_convert compare
    checkpoint_00004000 ckpt4000_bf16
    """

    first: Positional[Path]
    """First checkpoint; the formats are those of inspect."""
    second: Positional[Path]
    """Second checkpoint; of the same format, or one PAXML and one Megatron."""
    tolerance: float = 0.0
    """Largest difference that still counts as the same, absolute; 0 asks for the same bits."""
    workers: int = count_cores()
    """Blocks compared at the same time."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        from checkpoint_convert.inspection.compare_checkpoints import (
            compare_checkpoints,
            format_checkpoint_comparison,
            require_same_checkpoints,
        )

        comparison = compare_checkpoints(self.first, self.second, self.tolerance, workers=self.workers)
        print(json.dumps(asdict(comparison), indent=1) if self.json else format_checkpoint_comparison(comparison))
        require_same_checkpoints(comparison)
