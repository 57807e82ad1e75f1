"""The configuration of a stranger's run, as far as a replay needs it.

Only what is trained, on what, and from which files is taken over. What could run a program, write a file or open a
connection (--after-checkpoint, --prometheus-textfile, --wandb, ...) is never read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from benchmark.config.run_config import Benchmark, RunConfig, System
from benchmark.config.systems import SYSTEMS
from benchmark.config.typed_json import value_from_json
from stage.errors import InputError

MOST_BYTES = 1 << 20
MOST_SAMPLES = 200_000_000
"""Ten times those of the benchmark: their order takes 20 bytes each."""
MOST_SEQUENCE, MOST_LAYERS, MOST_BATCH = 1 << 17, 4096, 1 << 20


@dataclass(frozen=True)
class Replacements:
    """What the reviewer gives in the place of what the run had; None and () keep that."""

    train_data_path: tuple[str, ...] = ()
    valid_data_path: tuple[str, ...] = ()
    checkpoint: Path | None = None
    system: str | None = None
    """One of systems.py, for the run's own."""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Single fields of the system."""


def recorded_config(run_dir: Path, given: Replacements) -> RunConfig:
    """Raises InputError where ``config.json`` is not what a run writes, or describes a model beyond all bounds."""
    path = run_dir / "config.json"
    found = read_json(path)
    read = {name: value_from_json(hint, found.get(name), f"{path}: {name}") for name, hint in _hints().items()}
    benchmark: Benchmark = read["benchmark"]
    _require_bounded(benchmark, path)
    config = RunConfig(
        benchmark=benchmark,
        system=_system(read["system"], given),
        precision=read["precision"],
        deterministic=read["deterministic"],
        seed=read["seed"],
        result_number=read["result_number"],
        train_data_path=given.train_data_path or read["train_data_path"],
        valid_data_path=given.valid_data_path or read["valid_data_path"],
        checkpoint=given.checkpoint or read["checkpoint"],
        run_dir=run_dir,
        save_interval=0,
    )
    config.require_fit()
    return replace(config, evidence=True)


def _system(recorded: System, given: Replacements) -> System:
    if given.system is not None and given.system not in SYSTEMS:
        raise InputError(f"system {given.system!r:.60}: there are {', '.join(SYSTEMS)}; change --system")
    return replace(SYSTEMS[given.system] if given.system else recorded, **given.layout)


def _hints() -> dict[str, Any]:
    return {
        "benchmark": Benchmark,
        "system": System,
        "precision": Literal["bf16", "fp32"],
        "deterministic": bool,
        "seed": int,
        "result_number": int,
        "train_data_path": tuple[str, ...],
        "valid_data_path": tuple[str, ...],
        "checkpoint": Path | None,
    }


def read_json(path: Path) -> dict[str, Any]:
    """A small JSON object. Raises InputError for anything else."""
    try:
        if path.stat().st_size > MOST_BYTES or not path.is_file():
            raise InputError(f"{path}: {path.stat().st_size:,} bytes, expected a file of at most {MOST_BYTES:,}")
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the folder of a run that was trained with --evidence") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not JSON; expected the configuration that a run writes") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected a JSON object, the configuration that a run writes")
    return found


def _require_bounded(benchmark: Benchmark, path: Path) -> None:
    """No memory is taken by numbers that nobody has looked at."""
    model = benchmark.model
    bounds = {
        "train_samples": (benchmark.train_samples, MOST_SAMPLES),
        "global_batch_size": (benchmark.global_batch_size, MOST_BATCH),
        "seq_length": (model.seq_length, MOST_SEQUENCE),
        "num_layers": (model.num_layers, MOST_LAYERS),
        "hidden_size": (model.hidden_size, MOST_SEQUENCE),
        "padded_vocab_size": (model.padded_vocab_size, 1 << 22),
        "max_position_embeddings": (model.max_position_embeddings, MOST_SEQUENCE),
    }
    for name, (value, most) in bounds.items():
        if not 1 <= value <= most:
            raise InputError(f"{path}: {name} {value}: expected 1 to {most:,}; no run of this benchmark has it")
