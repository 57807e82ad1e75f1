"""The configuration of a stranger's run, as far as a replay needs it.

Only what is trained, on what, and from which files is taken over. What could run a program, write a file or open a
connection (--after-checkpoint, --prometheus-textfile, --wandb, ...) is never read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from benchmark.config.run_config import RunConfig
from benchmark.config.run_sections import DataOptions, LoggingOptions, SaveOptions
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.config.typed_json import value_from_json
from benchmark.evidence.companion import CONFIG, benchmark_of, read_config
from stage.errors import InputError


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
    path = run_dir / CONFIG
    found = read_config(path)
    flat = {**found, **found.get("data", {})}
    read = {name: value_from_json(hint, flat.get(name), f"{path}: {name}") for name, hint in _hints().items()}
    config = RunConfig(
        benchmark=benchmark_of(found, path),
        system=_system(read["system"], given),
        precision=read["precision"],
        deterministic=read["deterministic"],
        result_number=read["result_number"],
        data=DataOptions(
            train_data_path=given.train_data_path or read["train_data_path"],
            valid_data_path=given.valid_data_path or read["valid_data_path"],
            checkpoint=given.checkpoint or read["checkpoint"],
            seed=read["seed"],
        ),
        run_dir=run_dir,
        checkpoints=SaveOptions(save_interval=0),
        logging=LoggingOptions(evidence=True),
    )
    config.require_fit()
    return config


def log_of(run_dir: Path, given: Path | None, result_number: int) -> Path:
    """The MLPerf log: the one ``given``, else the run's, else that of the package that the evidence lies in:
    ORG/results/SYSTEM/gpt3/result_N.txt for ORG/benchmarks/gpt3/implementations/SYSTEM/evidence/result_N.

    Raises InputError where there is none.
    """
    own = run_dir / f"result_{result_number}.txt"
    here = run_dir.resolve()
    system, package = here.parent.parent, here.parents[min(5, len(here.parents) - 1)]
    in_package = package / "results" / system.name / "gpt3" / f"{here.name}.txt"
    for path in (given,) if given is not None else (own, in_package):
        if path.is_file():
            return path
    raise InputError(f"{given or own}: no such file; give the run's MLPerf log with --log")


def _system(recorded: System, given: Replacements) -> System:
    if given.system is not None and given.system not in SYSTEMS:
        raise InputError(f"system {given.system!r:.60}: there are {', '.join(SYSTEMS)}; change --system")
    return replace(SYSTEMS[given.system] if given.system else recorded, **given.layout)


def _hints() -> dict[str, Any]:
    return {
        "system": System,
        "precision": Literal["bf16", "fp32"],
        "deterministic": bool,
        "seed": int,
        "result_number": int,
        "train_data_path": tuple[str, ...],
        "valid_data_path": tuple[str, ...],
        "checkpoint": Path | None,
    }
