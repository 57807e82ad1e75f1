"""Work of earlier processes: it counts if it was made of the bytes that an input has today.

Bytes decide, by the MD5 that was computed while they were read. A copy on another disk is the same input; a file that
was replaced by another of the same size and time is not. Names, folders and times of modification only hint at inputs
that are worth reading again. Inputs at an address are read once; their server reports a change.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from data_prep.corpus.input_files import InputFile
from data_prep.preprocessing.token_part import facts_of
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import Manifest, Recipe
from foundation.outputs.resumable_output import ResumableOutput
from foundation.progress import progress

HASHED_AT_ONCE = 8


def choose_parts(job: ResumableOutput, names: Sequence[str], files: Sequence[InputFile]) -> list[str]:
    """Return the name of the part for each input: of a finished part of the same bytes, or else the input's own name.

    Names begin with the number of the input. A finished part of other bytes that has the input's own name is removed.
    """
    by_number: dict[str, list[str]] = {}
    for name in job.done:
        by_number.setdefault(_number_of(name), []).append(name)
    finished = [(position, by_number.get(_number_of(name), [])) for position, name in enumerate(names)]
    positions = [position for position, parts in finished if parts and isinstance(files[position].location, Path)]
    md5s = dict(zip(positions, _md5_of_each([files[position] for position in positions]), strict=True))
    chosen = list(names)
    for position, md5 in md5s.items():
        name = names[position]
        equal_parts = [part for part in by_number[_number_of(name)] if facts_of(job.done[part]).source_md5 == md5]
        if equal_parts:
            chosen[position] = name if name in equal_parts else equal_parts[0]
        elif name in job.done:
            job.path(name).unlink(missing_ok=True)
            del job.done[name]
    return chosen


def _number_of(name: str) -> str:
    return name.partition("-")[0]


def with_recorded_identities(recipe: Recipe, files: Sequence[InputFile], manifest: Manifest | None) -> Recipe:
    """Return the recipe with the manifest's identity of each input whose bytes have the MD5 that the manifest names.

    Only inputs of the same size and of another identity are read.
    """
    md5s = [] if manifest is None else manifest.facts.get("input_md5", [])
    if manifest is None or len(md5s) != len(files) or len(manifest.inputs) != len(recipe.inputs):
        return recipe
    inputs, moved = list(recipe.inputs), []
    for position, (source, recorded) in enumerate(zip(recipe.inputs, manifest.inputs, strict=True)):
        is_local = position < len(files) and isinstance(files[position].location, Path)
        if is_local and source.bytes == recorded.bytes and source.identity != recorded.identity:
            moved.append(position)
    for position, md5 in zip(moved, _md5_of_each([files[position] for position in moved]), strict=True):
        if md5 == md5s[position]:
            inputs[position] = replace(inputs[position], identity=manifest.inputs[position].identity)
    return replace(recipe, inputs=inputs)


def _md5_of_each(files: Sequence[InputFile]) -> list[str]:
    """Return the MD5 of local files, several at a time."""
    if not files:
        return []
    paths = [file.location for file in files if isinstance(file.location, Path)]
    total = sum(file.source.bytes for file in files)
    with progress("compare", total, "bytes", files=len(files)) as meter, ThreadPoolExecutor(HASHED_AT_ONCE) as pool:
        return list(pool.map(lambda path: md5_file(path, meter), paths))
