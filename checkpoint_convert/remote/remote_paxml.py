"""A PAXML checkpoint elsewhere, to convert without a first copy.

    OUTPUT.source/           the arrays' metadata and counters, copied: what is asked before a chunk is read
    OUTPUT.source.json       where it lies, without secrets
    OUTPUT.objects.jsonl     key, size and version of every object that was read (``object_folder.py``);
                             OUTPUT.objects.shard-K-of-N.jsonl, by each of several tasks

Chunks are read as they are converted, whole, and kept nowhere. The three stay beside the output: they say what it was
made of, and a call that goes on compares them with what is there then.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorstore as ts
from isal import isal_zlib

from checkpoint_convert.formats.array_table import ARRAYS, REPEATS, groups
from checkpoint_convert.formats.boxes import Box, chunk_parts
from checkpoint_convert.formats.chunk_files import chunk_key
from checkpoint_convert.formats.paxml_counters import counter_shapes, is_counter
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE
from checksums.md5_list import read_list
from stage.errors import InputError
from stage.lock import only_one_in
from stage.publish import published_folder, write_text
from stage.remote.object_address import ObjectAddress
from stage.remote.object_folder import ObjectFolder
from stage.task_shard import TaskShard

DAMAGED: Any = isal_zlib.error
GZIP = 31
"""zlib's name for a window of 2**15 bytes in gzip's format."""
LARGEST_SMALL_FILE = 1 << 20


def skeleton_path(output: Path) -> Path:
    return output.with_name(output.name + ".source")


def records_path(output: Path, shard: TaskShard | None = None) -> Path:
    writer = "" if shard is None else f".shard-{shard.index}-of-{shard.count}"
    return output.with_name(f"{output.name}.objects{writer}.jsonl")


def records_of_others(output: Path, shard: TaskShard | None) -> list[Path]:
    """Records that other tasks have left, or leave now."""
    own = records_path(output, shard)
    names = re.compile(re.escape(output.name) + r"\.objects(?:\.shard-[0-9]+-of-[0-9]+)?\.jsonl")
    return sorted(path for path in output.parent.iterdir() if names.fullmatch(path.name) and path != own)


def sums_by_key(md5_list: Path, address: ObjectAddress) -> dict[str, str]:
    """A list of MD5 sums by the objects' keys: its paths begin in the checkpoint's folder, or with its name.

    Raises InputError where it is of something else.
    """
    sums, folder = read_list(md5_list), f"{address.name}/"
    found = {name.removeprefix("./").removeprefix(folder): digest for name, digest in sums.items()}
    if not any(name.endswith(f"/{METADATA_FILE}") for name in found):
        raise InputError(f"--md5-list {md5_list}: has no …/{METADATA_FILE}; expected the sums of a checkpoint's files")
    return found


def copy_skeleton(objects: ObjectFolder, skeleton: Path) -> Path:
    """Copy metadata and counters to ``skeleton``, unless the same are there; returns it.

    Raises InputError where there is no PAXML checkpoint.
    """
    files = dict(_small_files(objects))
    if not any(name.startswith("mdl_vars.") for name in files):
        raise InputError(f"{objects.address}: no PAXML checkpoint (no mdl_vars.params.lm.…/{METADATA_FILE} in it)")
    if not _holds(skeleton, files):
        with only_one_in(skeleton.parent, "another task writes it", name=f"{skeleton.name}.lock"):
            if not _holds(skeleton, files):  # another task was faster
                _publish(skeleton, files, str(objects.address))
    return skeleton


def _holds(skeleton: Path, files: Mapping[str, bytes]) -> bool:
    there = {str(path.relative_to(skeleton)): path for path in skeleton.rglob("*") if path.is_file()}
    return there.keys() == files.keys() and all(path.read_bytes() == files[name] for name, path in there.items())


def _publish(skeleton: Path, files: Mapping[str, bytes], address: str) -> None:
    with published_folder(skeleton) as partial:
        for name, content in files.items():
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).write_bytes(content)
    write_text(skeleton.with_name(skeleton.name + ".json"), json.dumps({"input": address}) + "\n")


def _small_files(objects: ObjectFolder) -> Iterable[tuple[str, bytes]]:
    """The metadata of every array that a checkpoint may have, and the whole of counters."""
    layers = REPEATS
    for name in _array_names([REPEATS]):
        content = objects.read(f"{name}/{METADATA_FILE}", require_json)
        if content is not None:
            layers = _layers(name, content, layers)
            yield f"{name}/{METADATA_FILE}", content
    if layers != REPEATS:
        for name in set(_array_names([layers])) - set(_array_names([REPEATS])):
            content = objects.read(f"{name}/{METADATA_FILE}", require_json)
            if content is not None:
                yield f"{name}/{METADATA_FILE}", content
    for name in counter_shapes(layers):
        assert is_counter(name)
        for file in (METADATA_FILE, "0"):
            content = objects.read(f"{name}/{file}", require_json if file == METADATA_FILE else require_small)
            if content is not None:
                yield f"{name}/{file}", content


def require_json(content: bytes) -> bytes:
    """Raises ValueError for anything else, as an error's page."""
    try:
        json.loads(require_small(content))
    except RecursionError:
        raise ValueError("nested without end") from None
    return content


def require_small(content: bytes) -> bytes:
    if len(content) > LARGEST_SMALL_FILE:
        raise ValueError(f"{len(content):,} bytes")
    return content


def _array_names(repeats: Sequence[int]) -> list[str]:
    return [
        group.paxml_prefix(array, number) + array.paxml
        for number in repeats
        for group in groups("fp32")
        for array in ARRAYS
    ]


def _layers(name: str, metadata: bytes, known: int) -> int:
    """As the shape of a stacked weight says: PAXML writes the number into the names of moments."""
    if not (name.startswith("mdl_vars.") and ".repeat." in name):
        return known
    try:
        first = json.loads(metadata)["shape"][0]
    except (ValueError, LookupError, TypeError):
        return known  # whoever opens the array complains
    return first if type(first) is int and 0 < first < 100_000 else known


@dataclass(frozen=True)
class RemoteSource:
    """An FP32 array whose chunks lie elsewhere."""

    path: Path
    """Of its copy of the metadata, for messages."""
    chunks: tuple[int, ...]
    metadata: dict[str, Any]
    objects: ObjectFolder
    missing_are_zeros: bool

    def read(self, box: Box, values: npt.NDArray[np.float32]) -> None:
        """Raises InputError for a chunk that is missing, damaged, changed or not to be had."""
        for numbers, in_box, in_chunk in chunk_parts(box, self.chunks):
            values[in_box] = self._chunk(numbers)[in_chunk]

    def _chunk(self, numbers: Sequence[int]) -> npt.NDArray[np.float32]:
        key = f"{self.path.name}/{chunk_key(numbers, self.metadata.get('dimension_separator', '.'))}"
        values = self.objects.read(key, self._decoded)
        if values is not None:
            return values
        if self.missing_are_zeros:
            return np.zeros(self.chunks, np.float32)
        raise InputError(
            f"{self.objects.address}/{key}: chunk is missing; the checkpoint is not whole there, or pass "
            "--missing-chunks-are-zeros if PAXML left it out as zeros, and its fill_value does not say otherwise"
        )

    def _decoded(self, content: bytes) -> npt.NDArray[np.float32]:
        """Raises ValueError where the content is no such chunk."""
        size = 4 * int(np.prod(self.chunks, dtype=np.int64))
        plain = (self.metadata.get("dtype"), self.metadata.get("order"), self.metadata.get("filters"))
        compressor = (self.metadata.get("compressor") or {}).get("id")
        if plain == ("<f4", "C", None) and compressor in (None, "gzip"):
            data = content if compressor is None else _unpacked(content, size)
            if len(data) != size:
                raise ValueError(f"it has {len(data)} bytes instead of {size}")
            return np.frombuffer(data, "<f4").reshape(self.chunks)
        return self._decoded_by_tensorstore(content)

    def _decoded_by_tensorstore(self, content: bytes) -> npt.NDArray[np.float32]:
        """Any other codec: an array of this one chunk, in memory."""
        metadata = {**self.metadata, "shape": list(self.chunks)}
        context = ts.Context()
        store = ts.KvStore.open({"driver": "memory"}, context=context).result()
        store.write(METADATA_FILE, json.dumps(metadata).encode()).result()
        separator = self.metadata.get("dimension_separator", ".")
        store.write(chunk_key([0] * len(self.chunks), separator), content).result()
        array = ts.open({"driver": "zarr", "kvstore": "memory://"}, context=context, open=True).result()
        values: npt.NDArray[np.float32] = array.read().result()
        return values


def _unpacked(content: bytes, size: int) -> bytes:
    """At most ``size`` bytes of memory, whatever is packed. Raises ValueError where it is anything else."""
    unpacker = isal_zlib.decompressobj(wbits=GZIP)
    try:
        data: bytes = unpacker.decompress(content, max_length=size + 1)
    except DAMAGED as error:
        raise ValueError(str(error)) from error
    if len(data) != size or not unpacker.eof:
        raise ValueError(f"it does not unpack to {size} bytes")
    return data
