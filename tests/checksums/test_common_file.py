"""The two small files of a checkpoint: their spelling may differ, their content may not."""

import argparse
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from checksums.common_file import PARAM_GROUP, common_content, is_only_spelled_otherwise


def archive(content: bytes, name: str = "common/data.pkl") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(name, content)
    return file.getvalue()


def saved(content: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


@pytest.mark.parametrize("bf16", [False, True])
def test_other_spellings_of_the_published_content(bf16: bool, tmp_path: Path) -> None:
    path = tmp_path / "common.pt"
    as_published = common_content({**PARAM_GROUP, "betas": (0.9, 0.95)}, bf16=bf16)
    for content in (saved(as_published), archive(pickle.dumps(as_published), "common_fp32/data.pkl")):
        path.write_bytes(content)
        assert is_only_spelled_otherwise(path, bf16=bf16)
        assert not is_only_spelled_otherwise(path, bf16=not bf16)
        for damaged in (b"", content[: len(content) // 2], bytes(len(content)), b"\xff" + content[1:]):
            path.write_bytes(damaged)
            assert not is_only_spelled_otherwise(path, bf16=bf16), damaged


@pytest.mark.parametrize(
    "change", [{"step": 192}, {"step": 4000.0}, {"lr": 1e-4}, {"betas": [0.9, 0.999]}, {"more": 1}, {"step": None}]
)
def test_other_values_are_a_difference(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "common.pt").write_bytes(saved(common_content({**PARAM_GROUP, **change}, bf16=False)))
    assert not is_only_spelled_otherwise(tmp_path / "common.pt", bf16=False)


@pytest.mark.parametrize(
    "content",
    [
        archive(b""),
        archive(pickle.dumps({"other": 1})),
        archive(b"x", "a"),
        archive(b"\xff" * 100),
        saved(argparse.Namespace(step=4000)),
        archive(b"cos\nsystem\n(S'touch /tmp/made'\ntR."),
    ],
)
def test_other_contents_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "common.pt").write_bytes(content)
    assert not is_only_spelled_otherwise(tmp_path / "common.pt", bf16=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"sharded_backend": "zarr"}\n', True),
        ('{ "sharded_backend":"zarr" }', True),
        ("{}", False),
        ("[]", False),
        ('{"sharded_backend": "torch_dist"}', False),
        ('{"sharded_backend": "zarr", "x": 1}', False),
        ("[" * 100_000, False),
    ],
)
def test_metadata(text: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text(text)
    assert is_only_spelled_otherwise(tmp_path / "metadata.json", bf16=False) is expected
