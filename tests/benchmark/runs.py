"""Whole runs of the tiny benchmark, and what they wrote."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.engine.distributed import World
from benchmark.training.engine.train_state import TrainState, begin_state, empty_state
from benchmark.training.train import train
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from model.gpt3 import GPT3
from model.gpt3_config import GPT3Config
from tests.benchmark.tiny import CPU, TINY, Inputs, in_processes


def system_of(devices: int, **fields: Any) -> System:
    return dataclasses.replace(CPU, name=f"cpu_p{devices}", devices_per_node=devices, **fields)


def events(run_dir: Path, key: str) -> list[dict[str, Any]]:
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["key"] == key]


def mlperf(run_dir: Path) -> list[dict[str, Any]]:
    lines = (run_dir / "result_0.txt").read_text().splitlines()
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]


def figures(run_dir: Path) -> list[list[float]]:
    """Loss and gradient norm of each step, and the evaluations."""
    steps = events(run_dir, "step")
    evaluations = [event["log_perplexity"] for event in events(run_dir, "evaluation")]
    return [[event["loss"] for event in steps], [event["grad_norm"] for event in steps], evaluations]


def run(inputs: Inputs, run_dir: Path, system: System = CPU, **fields: Any) -> list[list[float]]:
    config = inputs.config(run_dir, system=system, **fields)
    statuses = in_processes(system.num_devices, train, config)
    assert statuses == ["success"] * system.num_devices
    return figures(run_dir)


def loaded_state(config: RunConfig, world: World) -> TrainState:
    """The state with which a run begins at its initial checkpoint."""
    progress = starting_progress(config.benchmark, 17)
    state = empty_state(config.benchmark, config.system, config.precision, world, progress)
    begin_state(state, config.data.checkpoint)
    return state


def plain_model(config: RunConfig) -> GPT3:
    """The model of gpt3.py with the weights that a run begins with: what its passes are held against."""
    sizes = config.benchmark.model
    assert isinstance(sizes, GPT3Config)
    model = GPT3(sizes)
    assert config.data.checkpoint is not None
    MegatronCheckpoint(config.data.checkpoint).load_weights(dict(model.named_parameters()))
    return model


def command_line(inputs: Inputs, **changes: object) -> list[object]:
    """Options of a command about a run of the tiny benchmark in one process; ``changes`` by option."""
    model = TINY.model
    assert isinstance(model, GPT3Config)
    options: dict[str, object] = {
        "--num-layers": model.num_layers,
        "--hidden-size": model.hidden_size,
        "--num-attention-heads": model.num_attention_heads,
        "--seq-length": model.seq_length,
        "--vocab-size": model.vocab_size,
        "--padded-vocab-size": model.padded_vocab_size,
        "--max-position-embeddings": model.max_position_embeddings,
        "--global-batch-size": 12,
        "--start-global-batch-size": 12,
        "--train-samples": 48024,
        "--micro-batch-size": 2,
        "--checkpoint": inputs.whole_chunks or inputs.checkpoint,
        **changes,
    }
    words: list[object] = [word for pair in options.items() for word in pair]
    words += ["--train-data-path", *inputs.training, "--valid-data-path", *inputs.validation]
    return ["rehearsal", "--system", "cpu_p1", *words]
