"""PAXML's counters: told from arrays by their names, Adam's step read from them and written back."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from checkpoint_convert.formats.step_files import counter_shapes, is_counter, paxml_adam_step, write_counters
from checkpoint_convert.formats.zarr_arrays import create_array, zarr_array
from stage.errors import InputError


def overwrite(path: Path, shape: tuple[int, ...], dtype: str, value: object) -> None:
    shutil.rmtree(path)
    create_array(path, shape, dtype, shape).write(value).result()


def step_in(folder: Path) -> int | None:
    return paxml_adam_step(folder, {path.name: zarr_array(path) for path in folder.iterdir()})


def test_step_is_that_of_the_moments(tmp_path: Path) -> None:
    assert step_in(tmp_path) is None
    write_counters(tmp_path, 4000, 3)
    assert {path.name for path in tmp_path.iterdir()} == set(filter(is_counter, counter_shapes(3)))
    assert not is_counter("opt_states_0.no_prefix_2.m.params.lm.final_ln.bias")
    overwrite(tmp_path / "step", (), "uint32", np.uint32(4001))  # an update was skipped
    for kept in ("*_2.count", "*.count", "step"):
        assert step_in(tmp_path) == (4001 if kept == "step" else 4000)
        for path in tmp_path.glob(kept):
            shutil.rmtree(path)


@pytest.mark.parametrize(
    ("shape", "dtype", "value", "complaint"),
    [
        (
            (2,),
            "int32",
            np.array([4000, 3999], np.int32),
            r"steps differ \(opt_states_0\.no_prefix_2\.count.*\[3999, 4",
        ),
        ((2,), "float32", np.ones(2, np.float32), r"\[2\] float32, expected a whole number, or one per layer"),
        ((1 << 20,), "int32", np.int32(4000), "expected a whole number"),
        ((2,), "int32", np.int32(-1), "steps differ"),
    ],
)
def test_counters_that_cannot_be_are_refused(
    shape: tuple[int, ...], dtype: str, value: object, complaint: str, tmp_path: Path
) -> None:
    write_counters(tmp_path, 4000, 2)
    overwrite(tmp_path / "opt_states_0.p#96#i-1_2.count", shape, dtype, value)
    with pytest.raises(InputError, match=complaint):
        step_in(tmp_path)
    shutil.rmtree(tmp_path / "opt_states_0.p#96#i-1_2.count")
    overwrite(tmp_path / "opt_states_0.no_prefix_2.count", (), "int32", np.int32(-1))
    with pytest.raises(InputError, match=r"no_prefix_2\.count: Adam's step -1: expected 0 to"):
        step_in(tmp_path)
