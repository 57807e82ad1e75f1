"""Small files that may differ are still what they should be."""

import io
import pickle
import zipfile
from pathlib import Path

import pytest

from checkpoint_convert.formats.common_files import common_files
from checksums.small_files import is_sound_small_file


def archive(content: bytes, name: str = "common/data.pkl") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_what_the_converter_writes_is_sound(dtype: str, tmp_path: Path) -> None:
    for name, content in common_files(dtype).items():
        (tmp_path / name).write_bytes(content)
        assert is_sound_small_file(tmp_path / name)
        for damaged in (b"", content[: len(content) // 2], bytes(len(content)), b"\xff" + content[1:]):
            (tmp_path / name).write_bytes(damaged)
            assert not is_sound_small_file(tmp_path / name), damaged


@pytest.mark.parametrize(
    "content",
    [archive(b""), archive(pickle.dumps({"other": 1})), archive(b"x", "a"), archive(b"\xff" * 100), archive(b"." * 9)],
)
def test_what_holds_something_else_is_not(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "common.pt").write_bytes(content)
    assert not is_sound_small_file(tmp_path / "common.pt")


@pytest.mark.parametrize("text", ["{}", "[]", '{"sharded_backend": "torch_dist"}', "[" * 100_000])
def test_metadata_of_something_else_is_not(text: str, tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text(text)
    assert not is_sound_small_file(tmp_path / "metadata.json")
