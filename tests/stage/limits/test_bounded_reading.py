"""Small files of anybody's: whatever they are or hold, one line says so."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.events.wandb_process import read_state
from benchmark.evidence.companion import read_config
from benchmark.supervision.attempt_folder import read_start
from benchmark.supervision.incidents import read_incidents
from benchmark.supervision.stop_note import read_stop_note
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path, read_progress
from benchmark.training.guards.rollback_file import read_rollbacks
from benchmark.training.guards.same_inputs import read_identities
from checkpoint_convert.export.huggingface_tokenizer import read_model
from checkpoint_convert.formats.safetensors_arrays import safetensors_arrays
from checkpoint_convert.formats.torch_files.torch_dist import iteration_folder
from checkpoint_convert.formats.zarr_arrays import read_metadata
from checkpoint_convert.model_sizes.attention_heads import attention_heads
from data_prep.corpus.validation_subset import write_validation_subset
from data_prep.sample_order.blend_file import read_blend, weights_of
from data_prep.tokenizing.tokenizer import Tokenizer
from stage.errors import InputError
from stage.limits.bounded_reading import read_small_json
from stage.manifest import read_manifest

BLEND = {"blend": 1, "datasets": [{"prefix": "a", "weight": 1, "tokens": 1, "idx_md5": ""}]}
RECORD = {"name": "x", "files": 1, "bytes": 1, "md5": None, "mtime_ns": 1}
MANIFEST = {"stage": "s", "options": {}, "inputs": [RECORD], "outputs": [], "versions": {}, "wall_s": 1.0}
READERS: dict[str, tuple[str, object, Callable[[Path], object]]] = {
    "x.manifest.json": ("x.manifest.json", MANIFEST, lambda folder: read_manifest(folder / "x")),
    "x.blend.json": ("x.blend.json", BLEND, lambda folder: read_blend(folder / "x.blend.json")),
    "index": ("x.safetensors.index.json", {"weight_map": {}}, safetensors_arrays),
    ".zarray": (".zarray", {"shape": [1], "chunks": [1]}, read_metadata),
}


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, object, Callable[[], object]]:
    name, good, read = READERS[request.param]
    return tmp_path / name, good, lambda: read(tmp_path)


Reader = tuple[Path, object, Callable[[], object]]


def test_what_is_no_file_is_not_waited_for(reader: Reader) -> None:
    path, good, read = reader
    path.write_text(json.dumps(good))
    read()
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: make_sparse(path)):
        path.rmdir() if path.is_dir() else path.unlink()
        make(path)
        with pytest.raises(InputError, match=path.name):
            read()


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("weights.txt", lambda path: weights_of([Path("a")], [1], "file", temperature=1.0, file=path)),
        (
            "a.hashes",
            lambda path: write_validation_subset([path.parent / "texts.json"], path.parent / "out", hash_list=path),
        ),
        ("m.model", read_model),
        ("m.model", Tokenizer),
        ("latest_checkpointed_iteration.txt", lambda path: iteration_folder(path.parent)),
    ],
    ids=["weights", "hashes", "exported tokenizer", "tokenizer", "tracker"],
)
def test_neither_are_other_small_files(name: str, read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"text": "a"}\n')
    path = tmp_path / name
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), make_sparse):
        make(path)
        with pytest.raises((InputError, IsADirectoryError)):
            read(path)
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    ("name", "found", "read"),
    [
        ("stopped.json", None, read_stop_note),
        ("attempts/0001/rank_00000.incident.json", [], lambda run: read_incidents(run / "attempts" / "0001")),
        ("attempts/0001/attempt.json", None, lambda run: read_start(run / "attempts" / "0001")),
        ("wandb/state.json", None, lambda run: read_state(run / "wandb")),
        ("inputs.json", InputError, read_identities),
        ("rollback.json", InputError, read_rollbacks),
        ("checkpoints/step_00000002/progress.json", InputError, lambda run: read_progress(checkpoint_path(run, 2))),
        ("config.json", InputError, lambda run: read_config(run / "config.json")),
    ],
)
def test_nor_are_a_run_s_own_files(name: str, found: object, read: Callable[[Path], object], tmp_path: Path) -> None:
    """Passed over where the run can do without; otherwise one line."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for make in (os.mkfifo, make_sparse, write_nesting, lambda path: path.write_text("[1]")):
        make(path)
        if found is InputError:
            with pytest.raises(InputError):
                read(tmp_path)
        else:
            assert read(tmp_path) == found
        path.unlink()


def write_nesting(path: Path) -> None:
    path.write_text("[" * 100_000)


def make_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def replaced(fields: object, value: object) -> "list[object]":
    """The fields with each of their values, at any depth, replaced in turn."""
    if not isinstance(fields, dict | list):
        return [value]
    found: list[object] = [value]
    for key in fields if isinstance(fields, dict) else range(len(fields)):
        for inner in replaced(fields[key], value):
            copy = dict(fields) if isinstance(fields, dict) else list(fields)
            copy[key] = inner
            found.append(copy)
    return found


@pytest.mark.parametrize(
    "value",
    [None, -1, 1e400, float("nan"), 10**400, "x", "\0", "", [], [[]], {}, True],
    ids=lambda value: repr(value)[:9],
)
def test_any_value_in_any_place_is_refused_or_taken(value: object, reader: Reader) -> None:
    path, good, read = reader
    for fields in replaced(good, value):
        path.write_text(json.dumps(fields))
        try:
            read()
        except InputError as error:
            assert path.name in str(error) or str(path.parent) in str(error)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "", "\ud800", "1" * 5000, "{}", "{'a': 1}"])
def test_nesting_and_what_is_no_json(text: str, reader: Reader) -> None:
    path, _, read = reader
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(InputError):
        read()


def test_a_manifest_that_names_itself_tells_no_heads(tmp_path: Path) -> None:
    itself = [{**RECORD, "name": str(tmp_path / "x")}] * 50
    (tmp_path / "x.manifest.json").write_text(json.dumps({**MANIFEST, "inputs": itself}))
    with pytest.raises(InputError, match="--heads"):
        attention_heads(tmp_path / "x", 96, None)
    (tmp_path / "x.manifest.json").write_text(json.dumps({**MANIFEST, "options": {"heads": "x"}}))
    with pytest.raises(InputError, match="'x' heads, expected a number"):
        attention_heads(tmp_path / "x", 96, None)


def test_larger_ones_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("[1, 2, 3]")
    assert read_small_json(tmp_path / "a", 9) == [1, 2, 3]
    with pytest.raises(InputError, match="9 bytes, more than 8"):
        read_small_json(tmp_path / "a", 8)
