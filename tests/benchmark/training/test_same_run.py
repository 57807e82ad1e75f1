"""A continued run: the same data from another place are the same, other data in the same place are not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.config.run_config import RunConfig
from benchmark.run_record.file_names import INPUTS_FILE
from benchmark.training.same_run import (
    InputIdentities,
    input_identities,
    read_identities,
    require_same_inputs,
    write_identities,
)
from foundation.errors import InputError
from foundation.outputs.manifest import manifest_path
from tests.benchmark.tiny import CPU, TINY, Inputs
from tests.support import changed


@pytest.fixture
def config(inputs: Inputs, tmp_path: Path) -> RunConfig:
    """Of files that may be changed: datasets with their manifests, and what is like a checkpoint."""
    for path in inputs.folder.glob("*.*"):
        if path.is_file():
            shutil.copy(path, tmp_path)
    for name in ("word/.zarray", "word/0.0", "metadata.json"):
        (tmp_path / "checkpoint" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "checkpoint" / name).write_bytes(bytes(100))
    return Inputs(tmp_path).config(tmp_path / "run", TINY, CPU)


def continued(config: RunConfig, begun: InputIdentities) -> None:
    require_same_inputs(config.run_dir, begun, input_identities(config.data))


def elsewhere(config: RunConfig, folder: Path) -> RunConfig:
    """The same configuration with all paths below another folder."""

    def moved(data_path: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(folder / Path(part).name) if "/" in part else part for part in data_path)

    return changed(
        config,
        train_data_path=moved(config.data.train_data_path),
        valid_data_path=moved(config.data.valid_data_path),
        checkpoint=folder / "checkpoint",
    )


def test_moved_linked_and_copied_data_are_the_same(config: RunConfig, tmp_path: Path) -> None:
    begun = input_identities(config.data)
    here = Path(config.data.valid_data_path[1]).parent
    (tmp_path / "link").symlink_to(here, target_is_directory=True)
    continued(elsewhere(config, tmp_path / "link"), begun)
    shutil.copytree(here, tmp_path / "copy", ignore=shutil.ignore_patterns("copy", "link", "*.manifest.json"))
    continued(elsewhere(config, tmp_path / "copy"), begun)
    gone = changed(config, checkpoint=tmp_path / "gone")
    continued(gone, begun)  # it goes on from its own
    continued(changed(config, checkpoint=None), begun)
    assert config.data.checkpoint is not None
    flip(config.data.checkpoint / "metadata.json")  # small files of a checkpoint may differ
    continued(config, begun)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def exchange(folder: Path) -> None:
    for kind in ("bin", "idx"):
        (folder / f"train_1.{kind}").write_bytes((folder / f"train_0.{kind}").read_bytes())


def tell_md5(folder: Path, now: str, before: str = "null") -> None:
    path = manifest_path(folder / "train_1")
    path.write_text(path.read_text().replace(f'"md5": {before}', f'"md5": {now}'))


ZEROS, ONES = (f'"{32 * digit}"' for digit in "01")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda folder: flip(folder / "valid.bin"), "--valid-data-path .*valid: not the contents .*samples_md5"),
        (exchange, "--train-data-path .*train_1: not the contents that the run began with .*documents 50, now 60"),
        (lambda folder: flip(folder / "checkpoint" / "word" / "0.0"), "--checkpoint .*samples_md5"),
        (lambda folder: (folder / "checkpoint" / "word" / "0.0").unlink(), "--checkpoint .*files 2, now 1"),
        (lambda folder: tell_md5(folder, ONES, ZEROS), f"train_1: not the contents .*md5 {32 * '0'}, now {32 * '1'}"),
    ],
)
def test_other_contents_in_the_same_place_are_refused(
    change: Callable[[Path], None], complaint: str, config: RunConfig
) -> None:
    folder = Path(config.data.valid_data_path[1]).parent
    tell_md5(folder, ZEROS)
    begun = input_identities(config.data)
    change(folder)
    with pytest.raises(InputError, match=complaint) as error:
        continued(config, begun)
    assert "choose another --run-dir" in str(error.value)


def test_weights_count_by_their_ratio(config: RunConfig) -> None:
    begun = input_identities(config.data)
    first, second = config.data.train_data_path[1::2]
    continued(changed(config, train_data_path=("3", first, "3.0", second)), begun)
    with pytest.raises(InputError, match=r"began with --train-data-path 0\.5 .*, now it is 0\.666667 "):
        continued(changed(config, train_data_path=("0.5", first, "0.25", second)), begun)


def test_order_number_and_kind_of_the_datasets_count(config: RunConfig) -> None:
    begun = input_identities(config.data)
    first, second = config.data.train_data_path[1::2]
    for other in (("0.5", second, "0.5", first), ("1.0", first), (first,), ("1", first, "1", second, "1", second)):
        with pytest.raises(InputError, match="--train-data-path"):
            continued(changed(config, train_data_path=other), begun)
    alone = changed(config, valid_data_path=config.data.valid_data_path[1:])
    with pytest.raises(InputError, match="--valid-data-path"):  # a blend of one has a margin, and another order
        continued(alone, begun)


def test_it_is_written_and_read(config: RunConfig) -> None:
    assert read_identities(config.run_dir.parent) is None
    found = input_identities(config.data)
    config.run_dir.mkdir()
    write_identities(config.run_dir, found)
    again = read_identities(config.run_dir)
    assert again == found
    for content in ("{", "[]", json.dumps({"train": 1}), json.dumps({"train": [{"a": 1}]})):
        (config.run_dir / INPUTS_FILE).write_text(content)
        with pytest.raises(InputError, match=r"inputs\.json: .*no file of a run; choose another --run-dir"):
            read_identities(config.run_dir)
