"""How many attention heads the model of a checkpoint has: no checkpoint stores it, what lies beside it may tell."""

import json
from pathlib import Path
from typing import Any

from stage.errors import InputError
from stage.manifest import read_manifest

BENCHMARK_HEADS = {12288: 96}
"""Attention heads by hidden size where nothing else tells them: the benchmark's model (reference facts, section 0)."""


def attention_heads(folder: Path, hidden: int, given: int | None) -> int:
    """Number of heads of the model in ``folder``: ``given`` (``--heads``), what was recorded, or the benchmark's.

    Raises InputError when nobody says it, the sources contradict each other, or it does not divide ``hidden``.
    """
    recorded = _heads_in_run(folder) or _heads_in_manifests(folder)
    heads = given if given is not None else recorded or BENCHMARK_HEADS.get(hidden)
    if heads is None:
        raise InputError(
            f"{folder}: a checkpoint does not store the number of attention heads, and no manifest or config.json "
            f"near it tells; pass --heads (hidden size {hidden})"
        )
    if recorded not in (None, heads):
        raise InputError(f"--heads {heads}: {folder} was made by a model of {recorded} heads; leave --heads out")
    if heads < 1 or hidden % heads:
        raise InputError(f"--heads {heads}: does not divide the hidden size {hidden} of {folder}")
    return heads


def _heads_in_run(folder: Path) -> int | None:
    """From ``RUN_DIR/config.json`` of a run's own checkpoint ``RUN_DIR/checkpoints/step_XXXXXXXX``."""
    path = folder.absolute().parent.parent / "config.json"
    if folder.absolute().parent.name != "checkpoints" or not path.is_file():
        return None
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["benchmark"]["model"]["num_attention_heads"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a run's configuration ({error}); copy {folder} elsewhere") from error


def _heads_in_manifests(output: Path) -> int | None:
    """From the options of the stage that made ``output``, or of one that made its inputs."""
    manifest = read_manifest(output)
    if manifest is None:
        return None
    recorded: Any = manifest.options.get("heads")
    if recorded is not None:
        return int(recorded)
    found = (_heads_in_manifests(Path(record.name)) for record in manifest.inputs)
    return next((heads for heads in found if heads is not None), None)
