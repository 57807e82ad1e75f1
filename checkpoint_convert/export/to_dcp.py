"""To PyTorch's distributed checkpoint format, with the names a run saves (train_state.py).

``torch.distributed.checkpoint.load`` reads it into any topology. It has no ``progress.json``: a seed, a batch size and
the samples consumed belong to a run, and a converted checkpoint has none. A run starts from the zarr layout instead.

One file per tensor. Memory: three times the largest tensor (2.5 GB at 175B), which is read only when its turn comes.
"""

import math
import time
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import MetadataIndex

from checkpoint_convert.conversion.output_records import already_made, require_apart, write_sums_and_manifest
from checkpoint_convert.export.tensor_source import MODEL, MOMENTS, TensorSource, ZarrSource
from checkpoint_convert.model_sizes.axis_sizes import parameter_axis_sizes
from checkpoint_convert.model_sizes.parameters import parameter_shapes
from checksums.md5_list import digest_folder, format_list
from stage.errors import InputError
from stage.manifest import require_intact
from stage.progress import Advance, progress
from stage.publish import published_folder

STAGE = "to-dcp"


def to_dcp(folder: Path, output: Path, *, force: bool = False) -> int | None:
    """Export FP32 weights and moments of a Megatron zarr checkpoint; returns the bytes written, None if they are there.

    Raises InputError for a source that is incomplete or damaged, and for other work under the output's name.
    """
    started = time.monotonic()
    source = ZarrSource(folder)
    shapes: dict[str, tuple[int, ...]] = {}
    for group in (MODEL, *MOMENTS):
        sizes = parameter_axis_sizes(folder, source.shapes(group))
        shapes.update({f"{group}/{name}": shape for name, shape in parameter_shapes(sizes).items()})
    require_apart(folder, output)
    if already_made(folder, output, stage=STAGE, options={}, force=force):
        return None
    total = 4 * sum(math.prod(shape) for shape in shapes.values())
    with published_folder(output) as partial, progress("export", total, "bytes") as advance:
        _save(partial, {key: torch.empty(shape, device="meta") for key, shape in shapes.items()}, source, advance)
    packages = ["tensorstore", "torch"]
    return write_sums_and_manifest(
        output,
        format_list(digest_folder(output)),
        stage=STAGE,
        options={},
        source=folder,
        source_made_by=require_intact(folder),
        packages=packages,
        started=started,
    )


def _save(folder: Path, tensors: dict[str, Tensor], source: TensorSource, advance: Advance) -> None:
    # PyTorch keeps what it wrote until the file is complete: hence a file per tensor. With a GPU it would read ahead.
    writer = dcp.FileSystemWriter(folder, single_file_per_rank=False, sync_files=False, per_thread_copy_ahead=0)
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # says that this is one process
            dcp.save(tensors, storage_writer=writer, planner=_LazyPlanner(source, advance), no_dist=True)
    except dcp.api.CheckpointException as error:
        reason = next(iter(error.failures.values()))[0]
        if isinstance(reason, (InputError, OSError, KeyboardInterrupt)):
            raise reason from error
        raise


class _LazyPlanner(dcp.DefaultSavePlanner):
    """The plan is made of tensors without memory; each is read when it is about to be written."""

    def __init__(self, source: TensorSource, advance: Advance) -> None:
        super().__init__()
        self._source, self._advance = source, advance

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        shape = tuple(self.state_dict[index.fqn].shape)
        self._advance(4 * math.prod(shape))
        return self._source.read(index.fqn, shape)
