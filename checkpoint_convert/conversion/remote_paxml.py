"""A PAXML checkpoint at an address, converted where it lies: nothing but its metadata and counters is copied first."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from checkpoint_convert.conversion.block_sources import chunk_keys
from checkpoint_convert.conversion.paxml_to_megatron import (
    ConversionOptions,
    PaxmlCheckpoint,
    array_path,
    convert_paxml,
    paxml_arrays,
)
from checkpoint_convert.conversion.run_conversion import Converted
from checkpoint_convert.conversion.source_files import RemoteFiles, require_sum
from checkpoint_convert.formats.array_table import REPEATS
from checkpoint_convert.formats.paxml_counters import counter_shapes, paxml_adam_step
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, read_metadata
from checkpoint_convert.model_sizes.axis_sizes import paxml_axis_sizes
from checksums.md5_list import read_list
from stage.addresses import ASKED_AT_ONCE, Address, RemoteFolder
from stage.errors import InputError
from stage.outputs.digest import md5_file
from stage.outputs.shards import Shard

LARGEST_SMALL_FILE = 1 << 20
"""Bytes of an array's metadata or a counter; the checkpoint's have some 300."""


@dataclass(frozen=True)
class RemoteInput:
    """The checkpoint at an address, and how it is read."""

    address: Address
    bytes_per_s: float | None = None
    md5_list: Path | None = None
    """Sums that all that is read must have."""


def remote_paxml_to_megatron(
    source: RemoteInput, output: Path, options: ConversionOptions, *, shard: Shard | None = None, force: bool = False
) -> Converted | None:
    """Convert the checkpoint at an address as ``paxml_to_megatron`` does a local one. Raises InputError likewise, and
    for an object that cannot be had, changes meanwhile or is not as the list of sums has it."""
    md5 = None if source.md5_list is None else _sums_by_name(source.md5_list, source.address)
    with metadata_of(source, md5) as (folder, names):
        objects = RemoteFolder(source.address, bytes_per_s=source.bytes_per_s)
        sizes = paxml_axis_sizes(folder)
        files = RemoteFiles(objects, [*names, *_needed_chunks(folder, sizes)], md5)
        checkpoint = PaxmlCheckpoint(folder, files, sizes, paxml_adam_step(folder))
        sums = None if source.md5_list is None else md5_file(source.md5_list)
        converted = convert_paxml(checkpoint, output, options, md5_list=sums, shard=shard, force=force)
        if files.unversioned:
            print(
                f"{source.address}: the server tells neither ETags nor times, so that of {files.unversioned:,} objects "
                "nobody can say whether they changed while they were converted",
                file=sys.stderr,
            )
        return converted


@contextmanager
def metadata_of(source: RemoteInput, md5: Mapping[str, str] | None = None) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder with a copy of the arrays' metadata and the counters, and the names of these files.

    Raises InputError where there is no PAXML checkpoint. Errors that name the copy name the address instead.
    """
    objects = RemoteFolder(source.address)
    with TemporaryDirectory(prefix="paxml_") as temporary:
        folder = Path(temporary)
        names = _copy(objects, _small_files(REPEATS), folder, md5)
        stacked = next((name for name in names if name.startswith("mdl_vars.") and ".repeat." in name), None)
        if stacked is None:
            raise InputError(f"{source.address}: no PAXML checkpoint (no mdl_vars.params.lm.…/{METADATA_FILE} in it)")
        try:
            layers = read_metadata((folder / stacked).parent)["shape"][0]
            if layers != REPEATS:  # PAXML writes the true number into the names of moments
                names += _copy(objects, set(_small_files(layers)) - set(_small_files(REPEATS)), folder, md5)
            yield folder, names
        except InputError as error:
            raise InputError(str(error).replace(temporary, str(source.address))) from error


def _small_files(layers: int) -> list[str]:
    """Return the names of the metadata of every array that a checkpoint may have, and of the whole of its counters."""
    arrays = [group.paxml_prefix(array, layers) + array.paxml for group, array in paxml_arrays()]
    counters = [f"{name}/{file}" for name in counter_shapes(layers) for file in (METADATA_FILE, "0")]
    return [*(f"{name}/{METADATA_FILE}" for name in arrays), *counters]


def _copy(objects: RemoteFolder, names: Iterable[str], folder: Path, md5: Mapping[str, str] | None) -> list[str]:
    """Copy those of ``names`` that are there; return their names."""

    def copy(name: str) -> bool:
        facts = objects.facts(name)
        where = str(objects.address.below(name))
        if facts is None:
            return False
        if facts.bytes > LARGEST_SMALL_FILE:
            raise InputError(f"{where}: {facts.bytes:,} bytes, expected {LARGEST_SMALL_FILE:,} at most")
        content = objects.read(name, expected=facts) or b""
        require_sum(where, name, content, md5)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        return True

    wanted = sorted(names)
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return [name for name, there in zip(wanted, pool.map(copy, wanted), strict=True) if there]


def _needed_chunks(folder: Path, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield the names of all chunks that the conversion reads."""
    for group, array in paxml_arrays():
        path = array_path(folder, group, array, sizes)
        fields = read_metadata(path)
        kept = array.paxml_shape(array.kept_sizes(sizes))
        if len(kept) == len(fields["chunks"]):  # else opening the array says what is wrong
            for key in chunk_keys(kept, fields["chunks"], fields.get("dimension_separator", ".")):
                yield f"{path.name}/{key}"


def _sums_by_name(md5_list: Path, address: Address) -> dict[str, str]:
    """Read a list of MD5 sums whose paths begin in the checkpoint's folder, or with its name. Raises InputError where
    it is of something else."""
    sums, folder = read_list(md5_list), f"{address.name}/"
    found = {name.removeprefix("./").removeprefix(folder): digest for name, digest in sums.items()}
    if not any(name.endswith(f"/{METADATA_FILE}") for name in found):
        raise InputError(f"--md5-list {md5_list}: has no …/{METADATA_FILE}; expected the sums of a checkpoint's files")
    return found
