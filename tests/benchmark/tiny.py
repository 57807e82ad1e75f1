"""A benchmark of a few seconds, and its runs in several forked processes."""

import dataclasses
import os
import queue
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import REHEARSAL
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.training.engine.distributed import end_process
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.formats.array_table import ARRAYS, array_dtype, groups
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.step_files import common_files
from checkpoint_convert.formats.zarr_arrays import create_array, zarr_array
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter
from foundation.child_processes import reserved_port
from foundation.outputs.manifest import Recipe, made_by, record_of, write_manifest
from model.gpt3_config import GPT3Config
from tests.forked import fork_server
from tests.support import changed

MODEL = GPT3Config(
    num_layers=4,
    hidden_size=40,  # three processes get 14, 14 and 12 rows of most parameters
    num_attention_heads=4,
    seq_length=16,
    vocab_size=100,
    padded_vocab_size=128,
    max_position_embeddings=32,
)
TINY = dataclasses.replace(
    REHEARSAL,
    name="tiny",
    model=MODEL,
    global_batch_size=12,
    start_global_batch_size=12,
    train_samples=4012 * 12,
    eval_interval_samples=48,
    target_log_perplexity=None,
)
SHORT = dataclasses.replace(TINY, train_samples=4006 * 12, eval_interval_samples=36)
"""Half as many steps: 6, with two evaluations."""
CPU = dataclasses.replace(SYSTEMS["cpu_p1"], fp8_weight_gradients=True)
"""All products of an FP8 run are in FP8, which leaves least out."""
STOCK = {system.micro_batch_size for system in SYSTEMS.values() if system.device == "cpu"}
"""Micro-batches of the rehearsal's size, for which the tiny benchmark has its own."""


USUAL: dict[str, Any] = {
    "seed": 17,
    "precision": "fp32",
    "save_interval": 0,
    "log_interval": 1000,
    "watchdog": False,  # an interpreter of its own beside each process; drills and whole commands have it
}


@dataclass(frozen=True)
class Inputs:
    """Files of the tiny benchmark."""

    folder: Path
    whole_chunks: Path | None = None
    """The same checkpoint with each array in one chunk, and no manifest: it is quick to make and to read."""

    @property
    def checkpoint(self) -> Path:
        """The converted one, made when it is first asked for: few tests need its thousands of files and manifest."""
        path = self.folder / "checkpoint"
        if not path.exists():
            paxml_to_megatron(self.folder / "paxml", path, dtype="bf16", workers=2, memory_limit=1 << 30)
        return path

    @property
    def training(self) -> tuple[str, ...]:
        return "0.5", str(self.folder / "train_0"), "0.5", str(self.folder / "train_1")

    @property
    def validation(self) -> tuple[str, ...]:
        return "1.00", str(self.folder / "valid")

    def config(self, run_dir: Path, benchmark: Benchmark = TINY, system: System = CPU, **fields: Any) -> RunConfig:
        if system.micro_batch_size in STOCK:  # two micro-batches, and in a pipeline as many for each of its stages
            samples = benchmark.global_batch_size // system.data_parallel
            micro_batch_size = max(1, samples // (2 * system.pipeline_parallel))
            system = dataclasses.replace(system, micro_batch_size=micro_batch_size)
        paths = {"train_data_path": self.training, "valid_data_path": self.validation}
        checkpoint = (self.whole_chunks or self.checkpoint) if benchmark.start_iterations else None
        whole = {**USUAL, **paths, "checkpoint": checkpoint, **fields}
        return changed(RunConfig(benchmark=benchmark, system=system, run_dir=run_dir), **whole)


DOCUMENTS = {"train_0": 60, "train_1": 50, "valid": 7}


def write_inputs(folder: Path, model: GPT3Config = MODEL, documents: Mapping[str, int] = DOCUMENTS) -> Inputs:
    """Datasets whose next token mostly follows from the last one, and a random checkpoint."""
    random = np.random.default_rng(1)
    for name, number in documents.items():
        with IndexedDatasetWriter(folder / name, np.dtype("<u2")) as writer:
            for _ in range(number):
                steps = random.choice([1, 2, 5], size=random.integers(5, 80))
                writer.append(np.cumsum(steps) % model.vocab_size, [len(steps)])
        outputs = [record_of(folder / f"{name}.{kind}", f"{name}.{kind}", None) for kind in ("bin", "idx")]
        recipe = Recipe("preprocess", {"vocab_size": model.vocab_size, "dtype": "uint16"}, [])
        write_manifest(folder / name, made_by(recipe, outputs, wall_s=0.0))
    sizes = ModelSizes(
        layers=model.num_layers,
        hidden=model.hidden_size,
        heads=model.num_attention_heads,
        vocab=model.padded_vocab_size,
        positions=model.max_position_embeddings,
    )
    write_random_paxml(folder / "paxml", seed=3, sizes=sizes)
    return Inputs(folder)


def write_whole_chunks(paxml: Path, folder: Path) -> Path:
    """What the conversion makes of ``paxml``, but with each array in one chunk."""
    sizes = {"L": 4, "C": 3, "N": 4, "D": 10, "H": 40, "F": 160, "V": 128, "P": 32}
    for group in groups("bf16"):
        for array in ARRAYS:
            shape, stored = array.megatron_shape(sizes), zarr_array(paxml / group.paxml_name(array))
            values = stored.read(whole_box(stored.shape)).transpose(array.permutation()).reshape(shape)
            for prefix in group.megatron:
                made = create_array(folder / (prefix + array.megatron), shape, array_dtype(prefix, "bf16"), shape)
                made.write(values.astype(made.dtype.numpy_dtype)).result()
    for name, content in common_files("bf16").items():
        (folder / name).write_bytes(content)
    return folder


def in_processes(world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call ``function(*arguments)`` in ``world_size`` processes of one world; their results in the order of ranks.

    The processes are forked from one that has imported PyTorch already. A failure in one of them is raised here.
    """
    context = fork_server()
    results = context.Queue()
    found: dict[int, Any] = {}
    with reserved_port() as port:
        processes = [
            context.Process(target=_call, args=(rank, world_size, port, results, function, arguments))
            for rank in range(world_size)
        ]
        try:
            for process in processes:
                process.start()
            while len(found) < world_size:
                rank, failure, result = _next(results, processes)
                if failure is not None:
                    raise RuntimeError(f"rank {rank}: {failure}")
                found[rank] = result
            for process in processes:
                process.join(10)
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
    return [found[rank] for rank in range(world_size)]


def _next(results: Any, processes: Sequence[Any]) -> tuple[int, str | None, Any]:
    """The next result. A process that died without one is an error at once, not after the time limit."""
    for _ in range(120):
        try:
            found: tuple[int, str | None, Any] = results.get(timeout=1)
            return found
        except queue.Empty:
            died = [process.exitcode for process in processes if process.exitcode]
            if died:
                how = f"with signal {-died[0]}" if died[0] < 0 else f"before it began: status {died[0]}"
                raise RuntimeError(f"a process died {how}") from None
    raise RuntimeError("no result in time")


def _call(
    rank: int, world_size: int, port: int, results: Any, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
    )
    try:
        results.put((rank, None, function(*arguments)))
    except BaseException as error:
        results.put((rank, f"{type(error).__name__}: {error}", None))
    results.close()
    results.join_thread()
    end_process(0)
