"""How many attention heads the model of a checkpoint has: no checkpoint stores it, what lies beside it may tell."""

from pathlib import Path

from stage.errors import InputError
from stage.limits.bounded_reading import DAMAGED, read_small_json
from stage.manifest import manifest_path, read_manifest

BENCHMARK_HEADS = {12288: 96}
"""Attention heads by hidden size where nothing else tells them: the benchmark's model (reference facts, section 0)."""
MOST_MANIFESTS = 100
"""That are followed from an output to its inputs."""


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
        return int(read_small_json(path)["benchmark"]["model"]["num_attention_heads"])
    except DAMAGED as error:
        raise InputError(f"{path}: not a run's configuration ({error}); copy {folder} elsewhere") from error


def _heads_in_manifests(output: Path) -> int | None:
    """From the options of the stage that made ``output``, or of one that made its inputs. Raises InputError for heads
    that are no number."""
    waiting, seen = [output], 0
    while waiting and seen < MOST_MANIFESTS:  # one may name itself
        place, seen = waiting.pop(0), seen + 1
        manifest = read_manifest(place)
        if manifest is None:
            continue
        recorded = manifest.options.get("heads")
        if type(recorded) is int:
            return recorded
        if recorded is not None:
            raise InputError(f"{manifest_path(place)}: {str(recorded)[:40]!r} heads, expected a number; pass --heads")
        waiting[:0] = [Path(record.name) for record in manifest.inputs]
    return None
