"""Back to PAXML's layout: the same bits in FP32."""

import shutil
from pathlib import Path

import pytest

from checkpoint_convert.conversion.paxml_to_megatron import open_paxml, paxml_to_megatron
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.step_files import is_counter
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import GIB, MakePaxml, read


def step_of(folder: Path) -> int | None:
    return open_paxml(LocalFiles(folder)).adam_step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ("--seed 1 --layers 1 --hidden 20 --heads 4 --vocab 64 --pos 2048 --values edge --compressor gzip", "bf16"),
        ("--seed 2 --layers 3 --hidden 20 --heads 5 --vocab 1002 --pos 20 --compressor none --chunks odd", "fp32"),
        ("--seed 3 --layers 1 --hidden 20 --heads 4 --vocab 208 --pos 2060 --values zeros --compressor none", "bf16"),
    ],
    ids=["edge", "odd", "zeros"],
)
def test_there_and_back_is_the_same(arguments: str, dtype: str, make_once: MakePaxml, tmp_path: Path) -> None:
    source = make_once(arguments)
    paxml_to_megatron(source, tmp_path / "there", dtype=dtype, workers=2, memory_limit=GIB)
    words = ["megatron-to-paxml", "--input", tmp_path / "there", "--output", tmp_path / "back"]
    done = run(*words)
    assert done.returncode == 0, done.stderr
    written = sorted(path.name for path in (tmp_path / "back").iterdir())
    assert [name for name in written if not is_counter(name)] == sorted(path.name for path in source.iterdir())
    assert step_of(tmp_path / "back") == 4000
    for before, after in ((read(path), read(tmp_path / "back" / path.name)) for path in source.iterdir()):
        assert before[: len(after)].tobytes() == after.tobytes()
    assert "already made" in run(*words).stdout
    (tmp_path / "there.manifest.json").unlink()
    run(*words[:-1], tmp_path / "other").refused("--heads")


def test_what_is_not_whole_is_refused(megatron: dict[str, Path], tmp_path: Path) -> None:
    source = shutil.copytree(megatron["bf16"], tmp_path / "source")
    words = ["megatron-to-paxml", "--heads", 4, "--output", tmp_path / "out", "--input"]
    run(*words, tmp_path).refused("not a Megatron zarr checkpoint (no metadata.json in it)")
    run(*words, source, "--workers", 0).refused("--workers 0: expected 1 to 4096")
    (source / "common.pt").write_bytes(b"damaged")
    run(*words, source).refused("common.pt")
    assert not list(tmp_path.glob("out*"))  # it is told first
    (source / "common.pt").unlink()
    assert run(*words, source).returncode == 0
    assert step_of(tmp_path / "out") is None
    bias = "optimizer.state.fp32_from_fp16.language_model.encoder.final_layernorm.bias"
    (source / bias / "0").unlink()
    run(*words, source, "--force").refused(f"{bias}: chunk 0 is missing; convert the checkpoint again")
