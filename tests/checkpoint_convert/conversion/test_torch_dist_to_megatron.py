"""From Megatron-Core's format: the other way's bytes, and what is not a whole checkpoint is refused."""

import shutil
from pathlib import Path

import pytest

from checkpoint_convert.conversion.torch_dist_to_megatron import torch_dist_to_megatron
from checkpoint_convert.export.to_torch_dist import to_torch_dist
from checkpoint_convert.formats.common_files import adam_step
from stage.errors import InputError
from tests.checkpoint_convert.tiny import GIB


@pytest.fixture(scope="module")
def torch_dist(megatron: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("torch_dist") / "out"
    to_torch_dist(megatron["fp32"], output)
    return output


def convert(source: Path, output: Path, dtype: str = "fp32") -> None:
    torch_dist_to_megatron(source, output, dtype=dtype, workers=1, memory_limit=GIB)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_step_and_the_number_of_arrays(dtype: str, torch_dist: Path, tmp_path: Path) -> None:
    convert(torch_dist, tmp_path / "back", dtype)
    assert len(list((tmp_path / "back").glob("*/.zarray"))) == {"fp32": 48, "bf16": 64}[dtype]
    assert adam_step(tmp_path / "back") == 4000


@pytest.mark.slow
def test_a_lost_shard_is_an_error(torch_dist: Path, tmp_path: Path) -> None:
    source = shutil.copytree(torch_dist, tmp_path / "source")
    shards = list((source / "iter_0004000").glob("*.distcp"))
    (source / "iter_0004000" / f"__0_{len(shards) - 2}.distcp").unlink()  # the last one is of what is no tensor
    with pytest.raises(InputError, match="missing, or shorter than the checkpoint's metadata says"):
        convert(source, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_what_is_no_such_checkpoint_is_refused(megatron: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a checkpoint of Megatron-Core's torch_dist"):
        convert(megatron["fp32"], tmp_path / "back")
