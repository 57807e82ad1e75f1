"""To PyTorch's distributed checkpoint format, with the names a run saves (train_state.py).

``torch.distributed.checkpoint.load`` reads it into any topology. It has no ``progress.json``: a seed, a batch size and
the samples consumed belong to a run, and a converted checkpoint has none. A run starts from the zarr layout instead.

One file per tensor. Memory: twice the largest tensor (2.5 GB at 175B) per worker.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from checkpoint_convert.export.dcp_shards import Shard, StoredTensor, save_shard, shard_file, write_metadata
from checkpoint_convert.export.export_files import Export, HashingFile, run_export
from checkpoint_convert.export.tensor_source import MODEL, MOMENTS, ZarrSource, opened_source
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.model_sizes.axis_sizes import parameter_axis_sizes
from checkpoint_convert.model_sizes.parameters import parameter_shapes

STAGE = "to-dcp"


@dataclass(frozen=True)
class TensorFile:
    """The file of one tensor."""

    folder: Path
    """The source."""
    shard: Shard

    @property
    def name(self) -> str:
        return self.shard.file

    @property
    def bytes(self) -> int:
        return self.shard.bytes

    def write(self, file: HashingFile) -> None:
        (tensor,) = self.shard.tensors
        save_shard(opened_source(self.folder).read(tensor.name, tensor.shape), file)


def to_dcp(folder: Path, output: Path, *, workers: int = 1, force: bool = False) -> int | None:
    """Export FP32 weights and moments of a Megatron zarr checkpoint; returns the bytes written, None if they are there.

    Raises InputError for a source that is incomplete or damaged, a full disk, and for other work under the output's
    name.
    """
    source = ZarrSource(folder)
    opened_source.cache_clear()
    shapes: dict[str, tuple[int, ...]] = {}
    for group in (MODEL, *MOMENTS):
        sizes = parameter_axis_sizes(folder, source.shapes(group))
        shapes.update({f"{group}/{name}": shape for name, shape in parameter_shapes(sizes).items()})
    shards = [
        Shard(shard_file(number), whole_box(shape), (StoredTensor(name, shape, torch.float32),))
        for number, (name, shape) in enumerate(shapes.items())
    ]
    export = Export(STAGE, {}, folder, output, ("tensorstore", "torch"))
    files = [TensorFile(folder, shard) for shard in shards]
    return run_export(
        export, files, lambda partial, made: write_metadata(partial, shards, made), workers=workers, force=force
    )
