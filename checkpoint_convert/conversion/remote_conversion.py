"""PAXML's checkpoint from where it lies, straight into the conversion: nothing but metadata is copied first."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from checkpoint_convert.conversion.block_sources import BlockSource
from checkpoint_convert.conversion.paxml_to_megatron import PaxmlToMegatronConversion
from checkpoint_convert.conversion.resuming.source_files import SourceFiles
from checkpoint_convert.conversion.run_conversion import Converted, run_conversion
from checkpoint_convert.formats.zarr_arrays import absent_chunks_are_zeros, open_array, read_metadata
from checkpoint_convert.model_sizes.axis_sizes import paxml_axis_sizes
from checkpoint_convert.remote.remote_paxml import (
    RemoteSource,
    copy_skeleton,
    records_of_others,
    records_path,
    skeleton_path,
    sums_by_key,
)
from stage.errors import InputError
from stage.limits.replacing import require_replaceable
from stage.limits.sizes import require_workers
from stage.remote.object_address import ObjectAddress
from stage.remote.object_folder import ObjectFolder
from stage.task_shard import TaskShard


@dataclass(frozen=True)
class RemotePaxmlConversion(PaxmlToMegatronConversion):
    """The conversion of a checkpoint of whose arrays only the metadata is here."""

    objects: ObjectFolder

    def opened(
        self, path: Path, shape: Sequence[int], kept: Sequence[int], files: SourceFiles, workers: int
    ) -> BlockSource:
        """Chunks that are missing show when they are read. Raises InputError for another shape or dtype."""
        array = open_array(path)
        if tuple(array.shape) != tuple(shape):
            raise InputError(f"{self.objects.address}/{path.name}: shape {list(array.shape)}, expected {list(shape)}")
        if array.dtype.numpy_dtype != np.float32:
            raise InputError(f"{self.objects.address}/{path.name}: dtype {array.dtype.name}, expected float32")
        chunks = tuple(array.chunk_layout.read_chunk.shape)
        missing_are_zeros = self.missing_chunks_are_zeros and absent_chunks_are_zeros(path)
        return RemoteSource(path, chunks, read_metadata(path), self.objects, missing_are_zeros)


@dataclass(frozen=True)
class RemoteInput:
    """What to read, and how fast."""

    address: ObjectAddress
    bytes_per_s: float | None = None
    md5_list: Path | None = None
    """Sums that the objects must have, compared as they are read."""


def remote_paxml_to_megatron(
    source: RemoteInput,
    output: Path,
    *,
    dtype: str,
    workers: int,
    memory_limit: int,
    missing_chunks_are_zeros: bool = False,
    force: bool = False,
    shard: TaskShard | None = None,
) -> tuple[Converted | None, int]:
    """As ``paxml_to_megatron``; also the number of objects of which the server cannot say whether they changed.

    Raises InputError likewise, and for an object that cannot be had or changes meanwhile.
    """
    require_workers(workers)
    skeleton = skeleton_path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    if force:
        require_replaceable(output, stage=PaxmlToMegatronConversion.stage, inputs=[])
    objects = ObjectFolder(
        source.address,
        records_path(output, shard),
        readers=workers,
        bytes_per_s=source.bytes_per_s,
        others=records_of_others(output, shard),
        md5=None if source.md5_list is None else sums_by_key(source.md5_list, source.address),
    )
    copy_skeleton(objects, skeleton)
    sizes = paxml_axis_sizes(skeleton)
    conversion = RemotePaxmlConversion(skeleton, dtype, sizes, missing_chunks_are_zeros, objects)
    converted = run_conversion(
        conversion,
        skeleton,
        output,
        workers=workers,
        memory_limit=memory_limit,
        force=force,
        shard=shard,
        at_the_end=lambda: objects.require_unchanged(own=shard is not None),
    )
    return converted, objects.cannot_be_asked
