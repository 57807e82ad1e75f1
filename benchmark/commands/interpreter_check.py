"""Check that a Python can run a command about a run, and that its options fit. Any Python from 3.6 on can run this.

python benchmark/commands/interpreter_check.py FORM COMMAND BENCHMARK [--system NAME] [overrides]

FORM is ``python``, ``names`` or ``options``. ``python`` asks first for the packages, PyTorch and the devices of the
system; ``names`` looks up benchmark and system; ``options`` refuses every option that the command itself would refuse.
The script prints the system's "nodes N", "devices N" (of a node) and "device cuda" or "device cpu", with exit status 0;
or one line "error: ..." with exit status 2, or 3 for a Python that lacks packages. ``names`` and ``options`` need none:
status 3 after the facts means that names or options hold, and that packages are missing.
"""

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmark.config.run_config import RunConfig

NAME = f"{sys.executable or 'python3'} {platform.python_version()}"
UNFIT_STATUS = 3
OLDEST = (3, 11)
"""Oldest supported version, as in pyproject.toml, which only newer versions can read."""


def lacking_packages() -> str:
    """Return what this Python lacks; empty if it has all packages."""
    from foundation.dependencies import missing

    problems = missing(None)
    return f"{NAME}: {'; '.join(problems)}" if problems else ""


def complaint(form: str, command: str, *options: str) -> str:
    """Return the reason why the command would fail; if there is none, print the system's facts and return an empty
    text."""
    try:
        from benchmark.commands.command_table import parse
        from benchmark.config.run_options import named_run, require_start
        from foundation.errors import InputError
    except ModuleNotFoundError:
        raise
    except Exception as error:  # a broken installation can fail in any way
        return _import_problem(error)
    try:
        if command == "rehearse":  # the one that is not about a run
            parse([command, *options])
            return ""
        benchmark, system, overrides = named_run(command, options)
        if command == "train":
            require_start(benchmark, overrides)
        facts = f"nodes {system.nodes}\ndevices {system.devices_per_node}\ndevice {system.device}"
        if form == "options":
            print(facts)
            return _missing_inputs(command, parse([command, *options]).config)  # type: ignore[attr-defined]
    except InputError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    if form == "python" and system.device == "cuda":
        try:
            import torch
        except Exception as error:
            return _import_problem(error)
        if not torch.cuda.is_available():
            return f"{NAME}: PyTorch {torch.__version__} sees no CUDA device, and system {system.name} needs them"
    print(facts)
    return ""


def _missing_inputs(command: str, config: "RunConfig") -> str:
    """Return a line about the first input that the run needs and does not have; empty if it has them all."""
    from benchmark.run_record.checkpoint_list import newest_checkpoint

    data, checkpoint = config.data, config.data.checkpoint
    training_paths = data.train_data_path if command == "train" else ()
    for path in (Path(f"{word}.idx") for word in (*training_paths, *data.valid_data_path) if "/" in word):
        if command != "preflight" and not path.exists():
            return f"{path}: no such file; COM_DIR is the folder with the benchmark's token files"
    if command == "evaluate" and checkpoint is None:
        return "EXTERNAL_MODEL_CHECKPOINT_DIR is not set: the converted initial checkpoint, or a run's own"
    begins = command == "train" and newest_checkpoint(config.run_dir) is None
    if begins and checkpoint is not None and not (checkpoint / "metadata.json").is_file():
        return f"{checkpoint}: not a Megatron zarr checkpoint (no metadata.json in it); convert the checkpoint first"
    return ""


def _import_problem(error: Exception) -> str:
    return f"{NAME}: import fails: {type(error).__name__}: {' '.join(str(error).split())}"


def main(words: "list[str]") -> int:
    """Print the answer; return the exit status."""
    if sys.version_info < OLDEST:
        print(f"error: {NAME}: Python {OLDEST[0]}.{OLDEST[1]} or newer is needed")
        return UNFIT_STATUS
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    lacking, problem = lacking_packages(), ""
    if not lacking or words[0] != "python":
        try:
            problem = complaint(*words)
        except ModuleNotFoundError as error:  # as of the package that reads a system's file
            problem = "" if lacking else _import_problem(error)
    if problem or lacking:
        print(f"error: {problem or lacking}")
    return 2 if problem else UNFIT_STATUS if lacking else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
