"""Back to PAXML's layout: the same bits in FP32."""

from pathlib import Path

import pytest

from checkpoint_convert.conversion.megatron_to_paxml import megatron_to_paxml
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.formats.paxml_counters import is_counter, paxml_adam_step
from stage.errors import InputError
from tests.checkpoint_convert.tiny import GIB, MakePaxml, read
from tests.support import assert_refused, command


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "--seed 1 --layers 4 --hidden 36 --heads 4 --vocab 512 --pos 2048 --values edge --compressor gzip",
        "--seed 2 --layers 3 --hidden 20 --heads 5 --vocab 1002 --pos 20 --compressor none --chunks odd",
        "--seed 3 --layers 1 --hidden 24 --heads 3 --vocab 208 --pos 2060 --values zeros --compressor none",
    ],
    ids=["edge", "odd", "zeros"],
)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_there_and_back_is_the_same(arguments: str, dtype: str, make_once: MakePaxml, tmp_path: Path) -> None:
    source = make_once(arguments)
    paxml_to_megatron(source, tmp_path / "there", dtype=dtype, workers=2, memory_limit=GIB)
    done = command(
        "checkpoint_convert", "megatron-to-paxml", "--input", tmp_path / "there", "--output", tmp_path / "back"
    )
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in source.iterdir())
    written = sorted(path.name for path in (tmp_path / "back").iterdir())
    assert [name for name in written if not is_counter(name)] == names
    assert paxml_adam_step(tmp_path / "back") == 4000
    for name in names:
        before, after = read(source / name), read(tmp_path / "back" / name)
        assert before[: len(after)].tobytes() == after.tobytes(), name
    again = megatron_to_paxml(tmp_path / "there", tmp_path / "back", heads=None, workers=1, memory_limit=GIB)
    assert again is None
    (tmp_path / "there.manifest.json").unlink()
    arguments_without = ["--input", tmp_path / "there", "--output", tmp_path / "other"]
    assert_refused(command("checkpoint_convert", "megatron-to-paxml", *arguments_without), "--heads")


def test_what_is_no_megatron_checkpoint_is_refused(megatron: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a Megatron zarr checkpoint \(no metadata\.json in it\)"):
        megatron_to_paxml(tmp_path, tmp_path / "out", heads=4, workers=1, memory_limit=GIB)
    with pytest.raises(InputError, match="--workers 0: expected 1 to 4096"):
        megatron_to_paxml(megatron["fp32"], tmp_path / "out", heads=4, workers=0, memory_limit=GIB)
