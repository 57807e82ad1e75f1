"""The number of attention heads of a checkpoint's model: no checkpoint stores it, the files beside it may tell."""

from pathlib import Path

from checkpoint_convert.model_sizes.run_files import run_config
from stage.errors import InputError
from stage.outputs.manifest import manifest_path, read_manifest

BENCHMARK_HEADS = {12288: 96}
"""Attention heads by hidden size where nothing else tells them: the benchmark's model (reference facts, section 0)."""


def attention_heads(folder: Path, hidden: int, given: int | None) -> int:
    """Return the heads of the model in ``folder``: ``given`` (``--heads``), those recorded, or the benchmark's.

    Raises InputError when nobody says it, the sources contradict each other, or it does not divide ``hidden``.
    """
    recorded = _recorded_heads(folder)
    heads = given if given is not None else recorded or BENCHMARK_HEADS.get(hidden)
    if heads is None:
        raise InputError(
            f"{folder}: a checkpoint does not store the number of attention heads, and no manifest or config.json "
            f"beside it tells; pass --heads (hidden size {hidden})"
        )
    if recorded not in (None, heads):
        raise InputError(f"--heads {heads}: {folder} was made by a model of {recorded} heads; leave --heads out")
    if heads < 1 or hidden % heads:
        raise InputError(f"--heads {heads}: does not divide the hidden size {hidden} of {folder}")
    return heads


def _recorded_heads(folder: Path) -> int | None:
    """Return the heads that the configuration of the checkpoint's run tells, or its own manifest.

    The manifest's inputs are not followed: their paths may have come to name something else.
    """
    config = run_config(folder)
    if config is not None:
        return config.benchmark.model.num_attention_heads
    manifest = read_manifest(folder)
    recorded = {**manifest.facts, **manifest.options}.get("heads") if manifest else None
    if recorded is not None and type(recorded) is not int:
        raise InputError(f"{manifest_path(folder)}: {str(recorded)[:40]!r} heads, expected a number; pass --heads")
    return recorded
