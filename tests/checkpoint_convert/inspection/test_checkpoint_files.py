"""A checkpoint is recognised by what its folder holds."""

from pathlib import Path

import pytest

from checkpoint_convert.inspection.checkpoint_files import (
    MEGATRON,
    checkpoint_adam_step,
    has_master_weights,
    open_checkpoint,
)
from stage.errors import InputError


def test_a_converted_checkpoint(megatron: dict[str, Path]) -> None:
    found = {dtype: open_checkpoint(path) for dtype, path in megatron.items()}
    assert {one.format for one in found.values()} == {MEGATRON}
    assert (has_master_weights(found["bf16"]), has_master_weights(found["fp32"])) == (True, False)
    assert {checkpoint_adam_step(one) for one in found.values()} == {4000}


@pytest.mark.parametrize(
    ("tracker", "told"),
    [
        (None, "holds no zarr arrays"),
        ("7", "iter_0000007"),
        ("release", "expected an iteration"),
        ("9" * 40, "expected"),
    ],
)
def test_a_folder_of_nothing_known(tracker: str | None, told: str, tmp_path: Path) -> None:
    if tracker is not None:
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(tracker)
    with pytest.raises(InputError, match=told):
        open_checkpoint(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        open_checkpoint(tmp_path / "none")
