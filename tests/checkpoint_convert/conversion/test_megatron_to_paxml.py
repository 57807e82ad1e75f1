"""Back to PAXML's layout: the same bits in FP32."""

import shutil
from pathlib import Path

import pytest

from checkpoint_convert.conversion.megatron_to_paxml import megatron_to_paxml
from checkpoint_convert.conversion.paxml_to_megatron import open_paxml, paxml_to_megatron
from checkpoint_convert.formats.paxml_counters import is_counter
from checkpoint_convert.formats.source_files import LocalFiles
from stage.errors import InputError
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import GIB, MakePaxml, read


def step_of(folder: Path) -> int | None:
    return open_paxml(LocalFiles(folder)).adam_step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ("--seed 1 --layers 4 --hidden 36 --heads 4 --vocab 512 --pos 2048 --values edge --compressor gzip", "bf16"),
        ("--seed 2 --layers 3 --hidden 20 --heads 5 --vocab 1002 --pos 20 --compressor none --chunks odd", "fp32"),
        ("--seed 3 --layers 1 --hidden 24 --heads 3 --vocab 208 --pos 2060 --values zeros --compressor none", "bf16"),
    ],
    ids=["edge", "odd", "zeros"],
)
def test_there_and_back_is_the_same(arguments: str, dtype: str, make_once: MakePaxml, tmp_path: Path) -> None:
    source = make_once(arguments)
    paxml_to_megatron(source, tmp_path / "there", dtype=dtype, workers=2, memory_limit=GIB)
    words = ["megatron-to-paxml", "--input", tmp_path / "there", "--output", tmp_path / "back"]
    done = run(*words)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in source.iterdir())
    written = sorted(path.name for path in (tmp_path / "back").iterdir())
    assert [name for name in written if not is_counter(name)] == names
    assert step_of(tmp_path / "back") == 4000
    for name in names:
        before, after = read(source / name), read(tmp_path / "back" / name)
        assert before[: len(after)].tobytes() == after.tobytes(), name
    assert "already made" in run(*words).stdout
    (tmp_path / "there.manifest.json").unlink()
    run(*words[:-1], tmp_path / "other").refused("--heads")


def test_the_step_is_that_of_common_pt_or_none(megatron: dict[str, Path], tmp_path: Path) -> None:
    source = shutil.copytree(megatron["bf16"], tmp_path / "source")
    (source / "common.pt").unlink()
    megatron_to_paxml(source, tmp_path / "out", heads=4, workers=1, memory_limit=GIB)
    assert step_of(tmp_path / "out") is None
    (source / "common.pt").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"common\.pt"):
        megatron_to_paxml(source, tmp_path / "other", heads=4, workers=1, memory_limit=GIB)
    assert not list(tmp_path.glob("other*"))  # it is told first


def test_what_is_no_megatron_checkpoint_is_refused(megatron: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a Megatron zarr checkpoint \(no metadata\.json in it\)"):
        megatron_to_paxml(tmp_path, tmp_path / "out", heads=4, workers=1, memory_limit=GIB)
    with pytest.raises(InputError, match="--workers 0: expected 1 to 4096"):
        megatron_to_paxml(megatron["fp32"], tmp_path / "out", heads=4, workers=0, memory_limit=GIB)
    source = shutil.copytree(megatron["fp32"], tmp_path / "source")
    min((source / "language_model.encoder.final_layernorm.bias").glob("[0-9]*")).unlink()
    with pytest.raises(InputError, match=r"final_layernorm\.bias: chunk 0 is missing; convert the checkpoint again"):
        megatron_to_paxml(source, tmp_path / "out", heads=4, workers=1, memory_limit=GIB)
