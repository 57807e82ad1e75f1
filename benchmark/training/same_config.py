"""Check that a continued run has the configuration it began with.

RUN_DIR/config.json     the resolved configuration, with the seed, as the newest attempt began
"""

import json
import secrets
from pathlib import Path
from typing import Any

import msgspec

from benchmark.config.run_config import RunConfig
from stage.errors import InputError
from stage.json_files import DAMAGED, read_json
from stage.outputs.publish import write_text

NAME = "config.json"
MUST_NOT_CHANGE = ("benchmark", "precision")
"""Fields of the configuration that must be the same when a run is continued."""


def as_json(config: Any) -> Any:
    """Return a configuration as JSON values."""
    return msgspec.json.decode(msgspec.json.encode(config, enc_hook=str))


def write_config(folder: Path, config: RunConfig) -> None:
    write_text(folder / NAME, json.dumps(as_json(config), indent=1) + "\n")


def begun_with(folder: Path) -> dict[str, Any] | None:
    """Return the fixed part of the configuration that an earlier, unfinished run in this folder began with."""
    path = folder / NAME
    try:
        begun = read_json(path, dict)
        return {**{name: begun[name] for name in MUST_NOT_CHANGE}, "seed": begun["data"]["seed"]}
    except FileNotFoundError:
        return None
    except (InputError, *DAMAGED) as error:
        raise InputError(f"{path}: not a run's configuration ({error}); choose another --run-dir") from error


def choose_seed(given: int | None, begun: dict[str, Any] | None) -> int:
    """Return the given seed, else that of the run that was killed here before its first checkpoint, else a new one.

    Seeds must come from the clock or the system's randomness (the rules: docs/facts/mlperf_review.md 7.10).
    """
    if given is not None:
        return given
    return int(begun["seed"]) if begun is not None else secrets.randbelow(2**31)


def require_same_config(config: RunConfig, begun: dict[str, Any] | None, folder: Path) -> None:
    """Raise InputError if ``config`` would not continue the run that began with ``begun``."""
    if begun is None:
        return
    now = as_json(config)
    for found in (begun, now):
        found["benchmark"].pop("samples_to_target", None)  # what other runs took changes nothing in this one
    now["benchmark"] = _fields_of(begun["benchmark"], now["benchmark"])
    for name in MUST_NOT_CHANGE:
        if begun[name] != now[name]:
            raise InputError(
                f"{folder}: the run began with {name} {begun[name]}, now it is {now[name]}; give the same options, or "
                "choose another --run-dir"
            )
    if config.data.seed not in (None, begun["seed"]):
        raise InputError(f"{folder}: the run began with seed {begun['seed']}; leave --seed out to continue it")


def _fields_of(begun: Any, now: Any) -> Any:
    """Return ``now`` without fields that the version which wrote ``begun`` did not have."""
    if not (isinstance(begun, dict) and isinstance(now, dict)):
        return now
    return {name: _fields_of(begun[name], value) for name, value in now.items() if name in begun}
