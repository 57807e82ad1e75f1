"""Check that a resumed run has the configuration of the run that began, and inputs with the same contents.

    RUN_DIR/config.json     the resolved configuration, with the seed, as the newest attempt began
    RUN_DIR/inputs.json     identities of the inputs, by their contents, as the run began; they may have moved since

The identity of a dataset consists of: the lengths of all documents, which decide on the order of the samples; size and
type of its tokens; the MD5 of 1,024 places of them; and the MD5 of the whole file, if its manifest gives one.
The identity of a checkpoint consists of: the names of its files; sizes and first bytes of 256 of them; and the MD5 of
the whole, if a manifest gives one. Paths are stored for messages only.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from benchmark.config.run_config import RunConfig
from benchmark.config.run_sections import DataOptions
from benchmark.run_record.file_names import CONFIG_FILE, INPUTS_FILE
from benchmark.training.resume_point import ResumePoint
from checkpoint_convert.formats.step_files import COMMON_FILES
from data_prep.sample_order.blend import normalized
from data_prep.sample_order.token_windows import parse_data_path
from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path
from foundation.disk_answers import folder_is_there
from foundation.errors import InputError
from foundation.file_formats.json_files import DAMAGED, read_json
from foundation.outputs.digest import md5_samples, md5_text
from foundation.outputs.manifest import read_manifest
from foundation.outputs.publish import write_text

SAMPLED_FILES = 256
"""Most files of a checkpoint that are read; the checkpoint has 123,520."""
MUST_NOT_CHANGE = ("benchmark", "precision")
"""Fields of the configuration that must be the same when a run is continued."""


@dataclass(frozen=True)
class ContentIdentity:
    """The identity of one dataset or checkpoint."""

    path: str
    """Path at which it lay."""
    facts: Mapping[str, Any]
    """Facts that must be the same."""
    md5: str | None
    """MD5 of the whole, from its manifest; None if no manifest gives it."""


@dataclass(frozen=True)
class InputIdentities:
    """The identities of a run's inputs.

    The weights, and whether a single prefix was given, also decide on the order of samples.
    """

    train: Sequence[ContentIdentity]
    train_weights: Sequence[float] | None
    """Weights that sum to 1; None for a single prefix, which is read without the blend's margin."""
    valid: Sequence[ContentIdentity]
    valid_weights: Sequence[float] | None
    checkpoint: ContentIdentity | None
    """None if the initial checkpoint was not given or no longer exists."""


def as_json(config: Any) -> Any:
    """Return a configuration as JSON values."""
    return msgspec.json.decode(msgspec.json.encode(config, enc_hook=str))


def begun_with(folder: Path) -> dict[str, Any] | None:
    """Return the fixed part of the configuration that an earlier, unfinished run in this folder began with."""
    path = folder / CONFIG_FILE
    try:
        config = read_json(path, dict)
        return {**{name: config[name] for name in MUST_NOT_CHANGE}, "seed": config["data"]["seed"]}
    except FileNotFoundError:
        return None
    except (InputError, *DAMAGED) as error:
        raise InputError(f"{path}: not a run's configuration ({error}); choose another --run-dir") from error


def settle_run(
    config: RunConfig, begun_config: dict[str, Any] | None, point: ResumePoint, inputs: InputIdentities | None
) -> None:
    """Check that a resumed run matches the run that began in its folder, and record the configuration with the seed;
    record the inputs of a run that begins.

    ``begun_config``: the value of :func:`begun_with`. Raises InputError if a run would go on with another configuration
    or other inputs.
    """
    folder = config.run_dir
    if point.checkpoint is not None:
        if begun_config is not None:
            _require_same_config(folder, begun_config, as_json(config))
        begun_inputs = read_identities(folder)
        if begun_inputs is not None and inputs is not None:
            require_same_inputs(folder, begun_inputs, inputs)
    elif inputs is not None:
        write_identities(folder, inputs)
    resolved = replace(config, data=replace(config.data, seed=point.progress.seed))
    write_text(folder / CONFIG_FILE, json.dumps(as_json(resolved), indent=1) + "\n")


def choose_seed(requested: int | None, begun_config: dict[str, Any] | None) -> int:
    """Return the requested seed, else the seed of the run that began here, else a new seed.

    Seeds must come from the clock or the system's randomness (the rules: docs/facts/mlperf_review.md 7.10).
    """
    if requested is not None:
        return requested
    return int(begun_config["seed"]) if begun_config is not None else secrets.randbelow(2**31)


def _require_same_config(folder: Path, begun_config: dict[str, Any], config: dict[str, Any]) -> None:
    """Raise InputError if ``config`` would not continue the run that began with ``begun_config``; both are JSON
    values."""
    for values in (begun_config, config):
        values["benchmark"].pop("samples_to_target", None)  # durations of other runs change nothing in this run
    if config["benchmark"]["shuffle_documents"] and "shuffle_documents" not in begun_config["benchmark"]:
        raise InputError(
            f"{folder}: the run began with a version that read other training windows, for it did not shuffle "
            "documents; continue it with that version, or choose another --run-dir"
        )
    config["benchmark"] = _fields_of(begun_config["benchmark"], config["benchmark"])
    for name in MUST_NOT_CHANGE:
        old, new = begun_config[name], config[name]
        if old != new:
            raise InputError(
                f"{folder}: the run began with {name} {old}, now it is {new}; give the same options, or choose another "
                "--run-dir"
            )
    if config["data"]["seed"] not in (None, begun_config["seed"]):
        raise InputError(f"{folder}: the run began with seed {begun_config['seed']}; leave --seed out to continue it")


def _fields_of(older: Any, values: Any) -> Any:
    """Return ``values`` without fields that the version which wrote ``older`` did not have."""
    if not (isinstance(older, dict) and isinstance(values, dict)):
        return values
    return {name: _fields_of(older[name], value) for name, value in values.items() if name in older}


def input_identities(data: DataOptions) -> InputIdentities:
    """Compute the identities of a run's inputs. Raises InputError for a dataset that cannot be opened.

    This reads document lengths, 16 MiB of each dataset's tokens and 4 MiB of the checkpoint: seconds at full size.
    """
    checkpoint = data.checkpoint
    return InputIdentities(
        *_datasets(data.train_data_path),
        *_datasets(data.valid_data_path),
        _checkpoint(checkpoint) if checkpoint is not None and folder_is_there(checkpoint) else None,
    )


def _datasets(data_path: tuple[str, ...]) -> tuple[list[ContentIdentity], list[float] | None]:
    if not data_path:
        return [], None
    weights, prefixes = parse_data_path(data_path)
    return [_dataset(Path(prefix)) for prefix in prefixes], None if len(data_path) == 1 else normalized(weights)


def _dataset(prefix: Path) -> ContentIdentity:
    dataset, tokens = IndexedDataset(prefix), bin_path(prefix)
    lengths = hashlib.md5(usedforsecurity=False)
    for sizes in dataset.sizes.blocks():
        lengths.update(sizes.data)
    facts = {
        "documents": len(dataset),
        "lengths_md5": lengths.hexdigest(),
        "dtype": dataset.dtype.name,
        "bytes": tokens.stat().st_size,
        "samples_md5": md5_samples(tokens),
    }
    return ContentIdentity(str(prefix), facts, _md5_by_manifest(prefix, tokens.name))


def _checkpoint(folder: Path) -> ContentIdentity:
    files = sorted(
        os.path.join(os.path.relpath(inner, folder), name)
        for inner, _, names in os.walk(folder)
        for name in names
        if name not in COMMON_FILES
    )
    chosen = files[:: max(1, -(-len(files) // SAMPLED_FILES))]
    facts = {
        "files": len(files),
        "names_md5": md5_text("".join(f"{name}\n" for name in files)),
        "samples_md5": md5_text("".join(f"{md5_samples(folder / name, samples=1)}\n" for name in chosen)),
    }
    return ContentIdentity(str(folder), facts, _md5_by_manifest(folder, folder.name))


def _md5_by_manifest(output: Path, name: str) -> str | None:
    manifest = read_manifest(output)
    outputs = manifest.outputs if manifest else ()
    return next((record.md5 for record in outputs if record.name == name), None)


def write_identities(run_dir: Path, identities: InputIdentities) -> None:
    write_text(run_dir / INPUTS_FILE, json.dumps(asdict(identities), indent=1) + "\n")


def read_identities(run_dir: Path) -> InputIdentities | None:
    """Return the identities that the run began with; None if there are none. Raises InputError if the file is
    damaged."""
    try:
        return read_json(run_dir / INPUTS_FILE, InputIdentities, mend="no file of a run; choose another --run-dir")
    except FileNotFoundError:
        return None


def require_same_inputs(run_dir: Path, begun: InputIdentities, inputs: InputIdentities) -> None:
    """Raise InputError, naming the first difference, if a run that began with the inputs ``begun`` would go
    on with others."""
    mend = "give the same inputs, or choose another --run-dir"
    for name, option in (("train", "--train-data-path"), ("valid", "--valid-data-path")):
        old, new = (getattr(identities, name) for identities in (begun, inputs))
        old_weights, new_weights = (getattr(identities, f"{name}_weights") for identities in (begun, inputs))
        if len(old) != len(new) or old_weights != new_weights:
            old_blend, new_blend = _blend(old, old_weights), _blend(new, new_weights)
            raise InputError(f"{run_dir}: the run began with {option} {old_blend}, now it is {new_blend}; {mend}")
        for old_dataset, new_dataset in zip(old, new, strict=True):
            _require_same(run_dir, option, old_dataset, new_dataset, mend)
    if begun.checkpoint is not None and inputs.checkpoint is not None:
        _require_same(run_dir, "--checkpoint", begun.checkpoint, inputs.checkpoint, mend)


def _blend(datasets: Sequence[ContentIdentity], weights: Sequence[float] | None) -> str:
    paths = [dataset.path for dataset in datasets]
    return " ".join(paths if weights is None else [f"{w:.6g} {p}" for w, p in zip(weights, paths, strict=True)])


def _require_same(run_dir: Path, option: str, old: ContentIdentity, new: ContentIdentity, mend: str) -> None:
    old_facts, new_facts = ({**identity.facts, "md5": identity.md5} for identity in (old, new))
    if None in (old.md5, new.md5):
        del old_facts["md5"]
    name = next((name for name in old_facts if old_facts[name] != new_facts.get(name)), None)
    if name is not None:
        path = new.path if old.path == new.path else f"{new.path}, which was {old.path}"
        raise InputError(
            f"{run_dir}: {option} {path}: not the contents that the run began with ({name} {old_facts[name]}, now "
            f"{new_facts.get(name)}); {mend}"
        )
