"""The runs that drills disturb: the rehearsals, made smaller, and their inputs."""

import dataclasses
from pathlib import Path
from typing import Any

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import REHEARSAL, REHEARSAL_LLAMA
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from foundation.outputs.manifest import manifest_path
from foundation.outputs.publish import published_folder
from model.gpt3_config import GPT3Config
from model.llama31_config import Llama31Config
from tests.benchmark.tiny import Inputs, write_inputs
from tests.support import changed

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
DOCUMENTS = {"train_0": 1000, "train_1": 800, "valid": 50}


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


def prepared_inputs(work_dir: Path) -> Inputs:
    """The inputs in ``work_dir``, made unless they are there: the same bytes every time."""
    folder = work_dir.resolve() / "inputs"
    if not folder.exists():
        with published_folder(folder) as partial:
            # a run counts the files that a manifest lists, which takes longer than its steps
            manifest_path(write_inputs(partial, MODEL, DOCUMENTS).checkpoint).unlink()
    return Inputs(folder)


def practice_config(
    inputs: Inputs, run_dir: Path, system: System, benchmark: Benchmark = PRACTICE, **fields: Any
) -> RunConfig:
    """The run of a drill; ``fields`` are those that differ."""
    common: dict[str, Any] = {
        "train_data_path": inputs.training,
        "valid_data_path": inputs.validation,
        "checkpoint": inputs.checkpoint if benchmark.start_iterations else None,
        "seed": 17,
        "save_interval": SAVE_INTERVAL,
        "audit_interval": 0,
        "evidence": True,
    }
    return changed(RunConfig(benchmark=benchmark, system=system, run_dir=run_dir), **{**common, **fields})
