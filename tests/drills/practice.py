"""The runs that drills disturb: the rehearsals, made smaller, and their inputs."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.config.benchmarks import REHEARSAL, REHEARSAL_LLAMA
from benchmark.config.run_config import Benchmark, RunConfig
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter
from model.gpt3_config import GPT3Config
from model.llama31_config import Llama31Config
from stage.outputs.manifest import Recipe, made_by, manifest_path, record_of, write_manifest
from stage.outputs.publish import published_folder

STEPS, EVAL_INTERVAL, SAVE_INTERVAL = 24, 8, 4
"""Optimizer steps of a run; between evaluations; between checkpoints."""
BATCH = 8
assert isinstance(REHEARSAL.model, GPT3Config) and isinstance(REHEARSAL_LLAMA.model, Llama31Config)
MODEL = dataclasses.replace(
    REHEARSAL.model,
    hidden_size=64,
    seq_length=64,
    vocab_size=250,
    padded_vocab_size=256,
    max_position_embeddings=64,
)
PRACTICE = dataclasses.replace(
    REHEARSAL,
    model=MODEL,
    global_batch_size=BATCH,
    start_global_batch_size=BATCH,
    train_samples=(REHEARSAL.start_iterations + STEPS) * BATCH,
    eval_interval_samples=EVAL_INTERVAL * BATCH,
    target_log_perplexity=None,
    initial_log_perplexity=None,
)
PRACTICE_LLAMA = dataclasses.replace(
    REHEARSAL_LLAMA,
    model=dataclasses.replace(
        REHEARSAL_LLAMA.model, hidden_size=64, seq_length=64, vocab_size=250, padded_vocab_size=256, ffn_hidden_size=224
    ),
    global_batch_size=BATCH,
    start_global_batch_size=BATCH,
    train_samples=STEPS * BATCH,
    eval_interval_samples=EVAL_INTERVAL * BATCH,
    evaluation_sequences=20,
    target_log_perplexity=None,
)
PRACTICES = {benchmark.name: benchmark for benchmark in (PRACTICE, PRACTICE_LLAMA)}
START_LIMIT_S, FLOOR_S = 25.0, 6.0
"""How long processes of a drill may be silent; a drill of the system's own limits takes those."""
DOCUMENTS = {"train_0": 400, "train_1": 300, "valid": 20}


def of_steps(benchmark: Benchmark, steps: int) -> Benchmark:
    """The benchmark with another length."""
    return dataclasses.replace(benchmark, train_samples=benchmark.start_samples + steps * BATCH)


def two_processes() -> System:
    return dataclasses.replace(SYSTEMS["cpu_p2"], micro_batch_size=2, start_limit_s=START_LIMIT_S, hang_floor_s=FLOOR_S)


def four_processes() -> System:
    """A tensor-parallel pair in each of two pipeline stages."""
    return dataclasses.replace(two_processes(), devices_per_node=4, tensor_parallel=2, pipeline_parallel=2)


def two_copies() -> System:
    """Both processes hold the whole model."""
    return dataclasses.replace(two_processes(), replicas=2)


LAYOUTS = {"2 processes": two_processes(), "TP2 x PP2": four_processes(), "2 copies": two_copies()}
"""Systems of the drills."""


@dataclass(frozen=True)
class PracticeInputs:
    """Token files and the initial checkpoint."""

    folder: Path

    @property
    def training(self) -> tuple[Path, Path]:
        return self.folder / "train_0", self.folder / "train_1"

    @property
    def validation(self) -> Path:
        return self.folder / "valid"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"


def prepared_inputs(work_dir: Path) -> PracticeInputs:
    """The inputs in ``work_dir``, made unless they are there: the same bytes every time."""
    folder = work_dir.resolve() / "inputs"
    if not folder.exists():
        with published_folder(folder) as partial:
            for name, documents in DOCUMENTS.items():
                _write_tokens(partial / name, documents)
            _write_checkpoint(partial)
    return PracticeInputs(folder)


def _write_tokens(prefix: Path, documents: int) -> None:
    """Documents whose next token mostly follows from the last one: there is something to learn."""
    random = np.random.default_rng(documents)
    with IndexedDatasetWriter(prefix, np.dtype("<u2")) as writer:
        for _ in range(documents):
            steps = random.choice([1, 2, 5], size=random.integers(20, 200))
            writer.append(np.cumsum(steps) % MODEL.vocab_size, [len(steps)])
    files = [f"{prefix.name}.{kind}" for kind in ("bin", "idx")]
    recipe = Recipe("preprocess", {"vocab_size": MODEL.vocab_size, "dtype": "uint16"}, [])
    outputs = [record_of(prefix.with_name(name), name, None) for name in files]
    write_manifest(prefix, made_by(recipe, outputs, wall_s=0.0))


def _write_checkpoint(folder: Path) -> None:
    sizes = ModelSizes(
        layers=MODEL.num_layers,
        hidden=MODEL.hidden_size,
        heads=MODEL.num_attention_heads,
        vocab=MODEL.padded_vocab_size,
        positions=MODEL.max_position_embeddings,
    )
    write_random_paxml(folder / "paxml", seed=1, sizes=sizes)
    paxml_to_megatron(folder / "paxml", folder / "checkpoint", dtype="bf16", workers=2, memory_limit=1 << 30)
    manifest_path(folder / "checkpoint").unlink()  # a run counts the files it lists, which takes longer than its steps


def practice_config(
    inputs: PracticeInputs, run_dir: Path, system: System, benchmark: Benchmark = PRACTICE, **fields: Any
) -> RunConfig:
    """The run of a drill; ``fields`` are those that differ."""
    words = [word for prefix in inputs.training for word in ("0.5", str(prefix))]
    common: dict[str, Any] = {
        "train_data_path": tuple(words),
        "valid_data_path": ("1.00", str(inputs.validation)),
        "checkpoint": inputs.checkpoint if benchmark.start_iterations else None,
        "seed": 17,
        "save_interval": SAVE_INTERVAL,
        "audit_interval": 0,
        "evidence": True,
    }
    return RunConfig(benchmark=benchmark, system=system, run_dir=run_dir).changed(**{**common, **fields})
