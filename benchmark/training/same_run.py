"""Check that a continued run is the one that began: its configuration, and the contents of what it reads.

    RUN_DIR/config.json     the resolved configuration, with the seed, as the newest attempt began
    RUN_DIR/inputs.json     identities of the inputs, by their contents, as the run began; they may have moved since

The identity of a dataset consists of: the lengths of all documents, which decide on the order of the samples; size and
type of its tokens; the MD5 of 1,024 places of them; and the MD5 of the whole file, if a manifest beside it gives one.
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

from benchmark.config.run_config import CONFIG_FILENAME, RunConfig
from benchmark.config.run_sections import DataOptions
from benchmark.training.resume_point import ResumePoint
from checksums.md5_list import MAY_DIFFER
from data_prep.sample_order.blend import normalized
from data_prep.sample_order.blend_file import is_blend_file
from data_prep.sample_order.token_windows import parse_data_path
from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path
from foundation.errors import InputError
from foundation.file_formats.json_files import DAMAGED, read_json
from foundation.outputs.digest import md5_samples, md5_text
from foundation.outputs.manifest import read_manifest
from foundation.outputs.publish import write_text

SAMPLED_FILES = 256
"""Most files of a checkpoint that are read; the checkpoint has 123,520."""
INPUTS = "inputs.json"
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
    path = folder / CONFIG_FILENAME
    try:
        begun = read_json(path, dict)
        return {**{name: begun[name] for name in MUST_NOT_CHANGE}, "seed": begun["data"]["seed"]}
    except FileNotFoundError:
        return None
    except (InputError, *DAMAGED) as error:
        raise InputError(f"{path}: not a run's configuration ({error}); choose another --run-dir") from error


def settle_run(
    config: RunConfig, begun: dict[str, Any] | None, point: ResumePoint, inputs: InputIdentities | None
) -> None:
    """Check that the run that begins or resumes in its folder is the one that began there, and record its configuration
    with the seed; record its inputs if it begins.

    ``begun``: what :func:`begun_with` returned. Raises InputError if a run would go on with another configuration or
    other inputs.
    """
    folder = config.run_dir
    if point.checkpoint is not None:
        if begun is not None:
            _require_same_config(folder, begun, as_json(config))
        noted = read_identities(folder)
        if noted is not None and inputs is not None:
            require_same_inputs(folder, noted, inputs)
    elif inputs is not None:
        write_identities(folder, inputs)
    resolved = replace(config, data=replace(config.data, seed=point.progress.seed))
    write_text(folder / CONFIG_FILENAME, json.dumps(as_json(resolved), indent=1) + "\n")


def choose_seed(requested: int | None, begun: dict[str, Any] | None) -> int:
    """Return the requested seed, else that of the run that began here, else a new one.

    Seeds must come from the clock or the system's randomness (the rules: docs/facts/mlperf_review.md 7.10).
    """
    if requested is not None:
        return requested
    return int(begun["seed"]) if begun is not None else secrets.randbelow(2**31)


def _require_same_config(folder: Path, begun: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise InputError if the configuration ``now``, as JSON values, would not continue the run that began with
    ``begun``."""
    for config in (begun, now):
        config["benchmark"].pop("samples_to_target", None)  # what other runs took changes nothing in this one
    if now["benchmark"]["shuffle_documents"] and "shuffle_documents" not in begun["benchmark"]:
        raise InputError(
            f"{folder}: the run began with a version that read other training windows, for it did not shuffle "
            "documents; continue it with that version, or choose another --run-dir"
        )
    now["benchmark"] = _fields_of(begun["benchmark"], now["benchmark"])
    for name in MUST_NOT_CHANGE:
        if begun[name] != now[name]:
            raise InputError(
                f"{folder}: the run began with {name} {begun[name]}, now it is {now[name]}; give the same options, or "
                "choose another --run-dir"
            )
    if now["data"]["seed"] not in (None, begun["seed"]):
        raise InputError(f"{folder}: the run began with seed {begun['seed']}; leave --seed out to continue it")


def _fields_of(begun: Any, now: Any) -> Any:
    """Return ``now`` without fields that the version which wrote ``begun`` did not have."""
    if not (isinstance(begun, dict) and isinstance(now, dict)):
        return now
    return {name: _fields_of(begun[name], value) for name, value in now.items() if name in begun}


def input_identities(data: DataOptions) -> InputIdentities:
    """Compute the identities of a run's inputs. Raises InputError for a dataset that cannot be opened.

    This reads document lengths, 16 MiB of each dataset's tokens and 4 MiB of the checkpoint: seconds at full size.
    """
    checkpoint = data.checkpoint
    return InputIdentities(
        *_datasets(data.train_data_path),
        *_datasets(data.valid_data_path),
        _checkpoint(checkpoint) if checkpoint is not None and checkpoint.is_dir() else None,
    )


def _datasets(data_path: tuple[str, ...]) -> tuple[list[ContentIdentity], list[float] | None]:
    if not data_path:
        return [], None
    weights, prefixes = parse_data_path(data_path)
    alone = len(data_path) == 1 and not is_blend_file(data_path[0])
    return [_dataset(Path(prefix)) for prefix in prefixes], None if alone else normalized(weights)


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
        if name not in MAY_DIFFER
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


def write_identities(run_dir: Path, found: InputIdentities) -> None:
    write_text(run_dir / INPUTS, json.dumps(asdict(found), indent=1) + "\n")


def read_identities(run_dir: Path) -> InputIdentities | None:
    """Return the identities that the run began with; None if there are none. Raises InputError if the file is
    damaged."""
    try:
        return read_json(run_dir / INPUTS, InputIdentities, mend="not what a run writes; choose another --run-dir")
    except FileNotFoundError:
        return None


def require_same_inputs(run_dir: Path, begun: InputIdentities, now: InputIdentities) -> None:
    """Raise InputError, naming the first difference, if a run would go on with other contents."""
    mend = "give what it began with, or choose another --run-dir"
    for name, option in (("train", "--train-data-path"), ("valid", "--valid-data-path")):
        before, given = getattr(begun, name), getattr(now, name)
        if len(before) != len(given) or getattr(begun, f"{name}_weights") != getattr(now, f"{name}_weights"):
            raise InputError(
                f"{run_dir}: the run began with {option} {_blend(begun, name)}, now it is {_blend(now, name)}; {mend}"
            )
        for one, other in zip(before, given, strict=True):
            _require_same(run_dir, option, one, other, mend)
    if begun.checkpoint is not None and now.checkpoint is not None:
        _require_same(run_dir, "--checkpoint", begun.checkpoint, now.checkpoint, mend)


def _blend(found: InputIdentities, name: str) -> str:
    paths = [one.path for one in getattr(found, name)]
    weights = getattr(found, f"{name}_weights")
    return " ".join(paths if weights is None else [f"{w:.6g} {p}" for w, p in zip(weights, paths, strict=True)])


def _require_same(run_dir: Path, option: str, begun: ContentIdentity, now: ContentIdentity, mend: str) -> None:
    different = [name for name in begun.facts if begun.facts[name] != now.facts.get(name)]
    if begun.md5 is not None and now.md5 is not None and begun.md5 != now.md5:
        different.append("md5")
    if different:
        name = different[0]
        before, after = ({**one.facts, "md5": one.md5}.get(name) for one in (begun, now))
        where = now.path if begun.path == now.path else f"{now.path}, which was {begun.path}"
        raise InputError(
            f"{run_dir}: {option} {where}: not the contents that the run began with ({name} {before}, now {after}); "
            f"{mend}"
        )
