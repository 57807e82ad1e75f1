"""Folders compared with lists of MD5 sums, whose paths are relative to the folder."""

import os
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from checksums.common_file import COMMON, METADATA, is_only_spelled_otherwise
from foundation.disk_answers import file_is_there, folder_is_there, is_there
from foundation.errors import InputError
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import entries_below
from foundation.progress import progress
from foundation.regular_files import folder_fault
from foundation.this_machine import count_cores

HASHED_AT_ONCE = 8
"""Files hashed at once; several wait for the disk while others are hashed."""
MAY_DIFFER = (METADATA, COMMON)
"""Files of a Megatron zarr checkpoint that may be spelled otherwise than those in the list."""
ARRAYS_BESIDE = MEGATRON_ARRAY, MASTER_ARRAY = "language_model.", "optimizer.state.fp32_from_fp16."
"""Prefixes of the folders of arrays in such a checkpoint: of a weight, and of a BF16 checkpoint's master weight."""


@dataclass(frozen=True)
class ListComparison:
    """A folder compared with a list; the fields hold paths."""

    matching: list[str]
    changed: list[str]
    missing: list[str]
    may_differ: list[str]
    """Files of MAY_DIFFER beside a checkpoint's arrays whose bytes differ, but whose content is the published one
    (``common_file.py``). They do not count as a difference."""
    extra: list[str]
    """Files in the folder but not in the list. They do not count as a difference: a data folder may hold caches and
    notes."""

    @property
    def holds(self) -> bool:
        return not self.changed and not self.missing


def digest_folder(folder: Path, *, leave_out: Path | None = None) -> dict[str, str]:
    """Return the MD5 of every file below ``folder`` by relative path, in byte order of the paths.

    Hidden files count; symbolic links are followed. ``leave_out`` is a file to skip.
    """
    sizes: dict[str, int] = {}
    for name, size in files_below(folder, leave_out=leave_out).items():
        if size is None:
            raise InputError(f"{folder / name}: a broken link, or not a regular file; it has no sum")
        sizes[name] = size
    return _md5_of_each(folder, sizes)


def files_below(folder: Path, *, leave_out: Path | None = None) -> dict[str, int | None]:
    """Return the bytes of every file by relative path, in byte order; None for broken links, pipes and the like.

    Raises InputError if ``folder`` is not a folder.
    """
    if not folder_is_there(folder):
        raise InputError(f"{folder}: {folder_fault(folder)}")
    sizes: dict[str, int | None] = {}
    for prefix, path in _folders_by_links(folder):
        for name, status in entries_below(path):
            sizes[os.path.join(prefix, name)] = None if status is None else status.st_size
    if leave_out is not None:
        sizes.pop(os.path.relpath(leave_out, folder), None)
    return {name: sizes[name] for name in sorted(sizes, key=os.fsencode)}


def _folders_by_links(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield ``folder``, and each folder below it that a link leads to, with its path relative to ``folder``.

    Raises InputError for a link that leads back to a folder that it was reached by.
    """
    waiting: list[tuple[str, Path, tuple[str, ...]]] = [("", folder, (os.path.realpath(folder),))]
    while waiting:
        prefix, path, parents = waiting.pop()
        yield prefix, path
        for inner, names, _ in os.walk(path):
            for link in filter(os.path.islink, (os.path.join(inner, name) for name in names)):
                target = os.path.realpath(link)
                if any(f"{parent}/".startswith(f"{target}/") for parent in (*parents, os.path.realpath(inner))):
                    raise InputError(f"{link}: a link back to {target}, which would be read without an end; remove it")
                waiting.append((os.path.join(prefix, os.path.relpath(link, path)), Path(link), (*parents, target)))


def compare_lists(folder: Path, listed: Mapping[str, str], *, leave_out: Path | None = None) -> ListComparison:
    """Read every listed file below ``folder`` and compare; ``leave_out`` does not count as extra.

    Raises InputError if ``folder`` is not a folder.
    """
    below = files_below(folder, leave_out=leave_out)
    existing = [
        name for name in listed if below.get(name) is not None or file_is_there(folder / name)
    ]  # in a linked folder
    digests = _md5_of_each(folder, {name: below.get(name) or (folder / name).stat().st_size for name in existing})
    changed = [name for name in digests if digests[name] != listed[name]]
    may_differ = [name for name in changed if _may_differ(folder, name, listed)]
    return ListComparison(
        matching=[name for name in digests if digests[name] == listed[name]],
        changed=[name for name in changed if name not in may_differ],
        missing=[name for name in listed if name not in digests],
        may_differ=may_differ,
        extra=[name for name in below if name not in listed],
    )


def _may_differ(folder: Path, name: str, listed: Mapping[str, str]) -> bool:
    """Return whether ``name`` is a small file of a Megatron zarr checkpoint that is only spelled otherwise.

    Such a checkpoint is recognised by the arrays that the list has beside the file.
    """
    path = Path(name)
    has_arrays = {
        array: any(listed_name.startswith(str(path.parent / array)) for listed_name in listed)
        for array in ARRAYS_BESIDE
    }
    is_one = path.name in MAY_DIFFER and has_arrays[MEGATRON_ARRAY]
    return is_one and is_only_spelled_otherwise(folder / name, bf16=has_arrays[MASTER_ARRAY])


def without_leading_folders(folder: Path, listed: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the folders that all paths of a list begin with beyond ``folder``, and the list without them.

    A list may have been made in a higher folder, or with absolute paths: leading folders are removed until a file is
    found. Raises InputError for absolute paths that match no file that way.
    """
    absolute = [name for name in listed if os.path.isabs(name)]
    if len(absolute) in (0, len(listed)):
        common = Path(os.path.commonpath(listed) if len(listed) > 1 else Path(min(listed)).parent).parts
        if common and not absolute and is_there(folder / common[0]):
            common = ()
        for count in range(bool(absolute), len(common) + 1):
            leading = os.path.join("", *common[:count], "")
            if any(file_is_there(folder / name.removeprefix(leading)) for name in listed):
                return leading, {name.removeprefix(leading): digest for name, digest in listed.items()}
    if absolute:
        raise InputError(f"{absolute[0]!r} is listed, which is not below {folder}")
    return "", dict(listed)


def _md5_of_each(folder: Path, sizes: Mapping[str, int]) -> dict[str, str]:
    """Return the MD5 of the files, in the order of ``sizes``. The largest are hashed first, so that no thread is left
    with one at the end."""
    names = iter(sorted(sizes, key=lambda name: -sizes[name]))
    workers = max(HASHED_AT_ONCE, count_cores())
    with progress("md5", sum(sizes.values()), "bytes", files=len(sizes)) as meter, ThreadPoolExecutor(workers) as pool:
        digests = dict[str, str]()

        def hash_files() -> None:
            for name in names:  # threads share it: a task for each file would take as long as a small file
                digests[name] = md5_file(folder / name, meter)
                meter(0, files=1)

        try:
            for done in as_completed([pool.submit(hash_files) for _ in range(workers)]):
                done.result()
        finally:
            deque(names, maxlen=0)  # after an error no thread begins another file
    return {name: digests[name] for name in sizes}
