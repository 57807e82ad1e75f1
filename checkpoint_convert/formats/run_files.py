"""Read, from the files beside a checkpoint, the attention heads of its model and the steps that were made.

CHECKPOINT.manifest.json                             the heads, of a checkpoint that was converted
RUN_DIR/config.json                                  the model, and Adam's step as the run began
RUN_DIR/checkpoints/step_XXXXXXXX/progress.json      the steps done since
"""

from dataclasses import dataclass
from pathlib import Path

from stage.errors import InputError
from stage.json_files import read_json
from stage.outputs.manifest import manifest_path, read_manifest

BENCHMARK_HEADS = {12288: 96, 4096: 32}
"""Attention heads by hidden size if no file gives them: the benchmarks' models (reference facts, section 0; Llama 3.1
8B)."""


@dataclass(frozen=True)
class ModelConfig:
    num_attention_heads: int


@dataclass(frozen=True)
class BenchmarkConfig:
    model: ModelConfig
    start_iterations: int
    """Adam's step in the initial checkpoint."""


@dataclass(frozen=True)
class RunSizes:
    benchmark: BenchmarkConfig


@dataclass(frozen=True)
class RunProgress:
    start_samples: int
    global_batch_size: int
    steps: int
    skipped_steps: int = 0
    """Steps that Adam skipped."""


def benchmark_of_run(folder: Path) -> BenchmarkConfig | None:
    """Return the benchmark of the run whose checkpoint ``folder`` is; None if ``folder`` is not in a run's folder.

    Raises InputError if the run's config.json is damaged.
    """
    path = folder.absolute().parent.parent / "config.json"
    if folder.absolute().parent.name != "checkpoints" or not path.is_file():
        return None
    return read_json(path, RunSizes, mend=f"it is not a run's configuration; copy {folder} elsewhere").benchmark


def run_steps(folder: Path) -> tuple[int | None, int | None]:
    """Return the steps since step 0, at the batch size of the run whose checkpoint ``folder`` is, and Adam's step.

    Either is None if the run's files do not give it. Raises InputError if they are damaged.
    """
    try:
        progress = read_json(folder / "progress.json", RunProgress, mend="use another checkpoint")
    except FileNotFoundError:
        return None, None
    if progress.global_batch_size < 1:
        raise InputError(f"{folder / 'progress.json'}: a batch of {progress.global_batch_size}; use another checkpoint")
    benchmark = benchmark_of_run(folder)
    adam = None if benchmark is None else benchmark.start_iterations + progress.steps - progress.skipped_steps
    return progress.start_samples // progress.global_batch_size + progress.steps, adam


def attention_heads(folder: Path, hidden: int, given: int | None) -> int:
    """Return the heads of the model in ``folder``: ``given`` (``--heads``), the recorded ones, or the benchmark's.

    The manifest's inputs are not followed: other files may now lie at their paths. Raises InputError if no source gives
    the number, the sources contradict each other, or the number does not divide ``hidden``.
    """
    benchmark, manifest = benchmark_of_run(folder), read_manifest(folder)
    recorded = {**manifest.facts, **manifest.options}.get("heads") if manifest else None
    if benchmark is not None:
        recorded = benchmark.model.num_attention_heads
    if recorded is not None and type(recorded) is not int:
        raise InputError(f"{manifest_path(folder)}: {str(recorded)[:40]!r} heads, expected a number; pass --heads")
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
