"""What ``--force`` may replace: what this stage made, and nothing else."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stage.errors import InputError
from stage.manifest import Manifest, Record, is_current, is_unfinished, manifest_path, read_manifest, record_of
from stage.publish import remove_left_partials

HEAD_BYTES = 1 << 12


def require_apart(output: Path, inputs: Sequence[Path]) -> None:
    """Raise InputError where writing ``output`` would remove or change an input: where it is one, holds one, or lies in
    a folder that is one, under whatever name (links, mounts)."""
    found: dict[Path, tuple[int, int] | str] = {}  # many inputs lie in the same folders

    def identity(path: Path) -> tuple[int, int] | str:
        if path not in found:
            found[path] = _identity(path)
        return found[path]

    for source in inputs:
        if identity(output) == identity(manifest_path(source)):
            raise InputError(f"{output}: is the manifest of the input {source}; choose another output")
        if any(identity(output) == identity(place) for place in _with_parents(source)):
            raise InputError(f"{output}: holds the input {source}; choose another output")
        if source.is_dir() and any(identity(source) == identity(place) for place in _with_parents(output)):
            raise InputError(f"{output}: lies in the input {source}; choose another output")


def require_replaceable(
    output: Path, *, stage: str, inputs: Sequence[Path], made: Sequence[Path] | None = None
) -> Manifest | None:
    """The manifest of what is there under ``output``'s name, if it may be replaced; None where nothing is there.

    ``made``: the files or folders that have the output's name (None: ``output`` itself; of a dataset prefix, its
    files). Raises InputError where it is, holds or lies in an input, or is not what its manifest says that this stage
    made: without a manifest, with another stage's, or with files besides.
    """
    made = [output] if made is None else made
    for path in made:
        require_apart(path, inputs)
    there = [path for path in made if os.path.lexists(path)]
    if not there:
        return None
    try:
        manifest = read_manifest(output)
    except InputError:
        manifest = None
    if manifest is None or manifest.stage != stage:
        found = "no manifest says what it is" if manifest is None else f"{manifest.stage} made it"
        raise InputError(
            f"{there[0]}: {found}, and only what {stage} made is replaced; choose another output or remove it yourself"
        )
    records = {record.name: record for record in manifest.outputs}
    for path in there:
        record = records.get(path.name)
        if record is None:
            raise InputError(f"{path}: not in {manifest_path(output)}; remove it yourself or choose another output")
        files = record_of(path, path.name, None).files
        if files > record.files:
            raise InputError(
                f"{path}: holds {files:,} files, {files - record.files:,} more than {stage} made; move what is yours "
                "or choose another output"
            )
    return manifest


def require_same_kind(path: Path, option: str, kind: str, begins: Callable[[bytes], bool]) -> None:
    """What an output that has no manifest may replace: a file of its own kind, by how that ``begins``, or an empty one.

    Raises InputError, naming ``option``, for anything else that has its name.
    """
    if not os.path.lexists(path):
        return
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if not head or begins(head):
            return
    raise InputError(f"{option} {path}: exists and is not {kind}; choose another name, or remove it yourself")


def must_be_made(
    output: Path,
    *,
    stage: str,
    options: Mapping[str, Any],
    inputs: Sequence[Path | Record],
    made: Sequence[Path] | None = None,
    force: bool,
    option: str = "--output",
) -> bool:
    """Whether there is work to do: False where ``output`` is what this stage makes of ``inputs`` with ``options``.

    Raises InputError, naming ``option``, where something else has its name and ``force`` is not given, and for what
    :func:`require_replaceable` refuses. What the same work left when it was killed is replaced without ``force``.
    """
    if not force and is_current(output, stage=stage, options=options, inputs=inputs):
        remove_left_partials(output)  # killed while it cleaned up, perhaps
        return False
    local = [path for path in inputs if isinstance(path, Path)]
    there = next((path for path in made or [output] if os.path.lexists(path)), None)
    if there is None:
        for path in made or [output]:
            require_apart(path, local)
        return True
    if not force and not is_unfinished(output, stage=stage, options=options, inputs=inputs):
        raise InputError(f"{there} exists and was made otherwise; choose another {option} or pass --force")
    require_replaceable(output, stage=stage, inputs=local, made=made)
    return True


def _with_parents(path: Path) -> Iterator[Path]:
    """A path and the folders it lies in, where it really lies."""
    real = Path(os.path.realpath(path))
    yield real
    yield from real.parents


def _identity(path: Path) -> tuple[int, int] | str:
    """What a file or folder is on this machine, or where one that is not there would be."""
    try:
        found = path.stat()
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino
