"""PAXML's counters: told from arrays by their names, Adam's step read from them and written back."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from checkpoint_convert.formats.paxml_counters import counter_shapes, is_counter, paxml_adam_step, write_counters
from checkpoint_convert.formats.zarr_arrays import create_array, zarr_array
from stage.errors import InputError


def overwrite(path: Path, shape: tuple[int, ...], dtype: str, value: object) -> None:
    shutil.rmtree(path)
    create_array(path, shape, dtype, shape).write(value).result()


def step_in(folder: Path) -> int | None:
    return paxml_adam_step(folder, {path.name: zarr_array(path) for path in folder.iterdir()})


def test_names() -> None:
    assert all(map(is_counter, counter_shapes(96)))
    assert len(counter_shapes(96)) == 9
    for name in ("mdl_vars.params.lm.final_ln.bias", "opt_states_0.no_prefix_2.m.params.lm.final_ln.bias", "steps"):
        assert not is_counter(name)


def test_step_is_that_of_the_moments(tmp_path: Path) -> None:
    assert step_in(tmp_path) is None
    write_counters(tmp_path, 4000, 3)
    assert zarr_array(tmp_path / "opt_states_0.p#96#i-1_2.count").read((slice(0, 3),)).tolist() == [4000] * 3
    assert step_in(tmp_path) == 4000
    overwrite(tmp_path / "step", (), "uint32", np.uint32(4001))  # an update was skipped
    assert step_in(tmp_path) == 4000
    for path in tmp_path.glob("*_2.count"):
        shutil.rmtree(path)
    assert step_in(tmp_path) == 4000
    for path in tmp_path.glob("*.count"):
        shutil.rmtree(path)
    assert step_in(tmp_path) == 4001


def test_counters_that_cannot_be_are_refused(tmp_path: Path) -> None:
    write_counters(tmp_path, 4000, 2)
    name = "opt_states_0.p#96#i-1_2.count"
    overwrite(tmp_path / name, (2,), "int32", np.array([4000, 3999], np.int32))
    with pytest.raises(InputError, match=r"steps differ \(opt_states_0\.no_prefix_2\.count \[4000\].*\[3999, 4000\]"):
        step_in(tmp_path)
    overwrite(tmp_path / name, (2,), "float32", np.ones(2, np.float32))
    with pytest.raises(InputError, match=r"\[2\] float32, expected a whole number, or one per layer"):
        step_in(tmp_path)
    overwrite(tmp_path / name, (1 << 20,), "int32", np.int32(4000))
    with pytest.raises(InputError, match="expected a whole number"):
        step_in(tmp_path)
    shutil.rmtree(tmp_path / name)
    overwrite(tmp_path / "opt_states_0.no_prefix_2.count", (), "int32", np.int32(-1))
    with pytest.raises(InputError, match=r"no_prefix_2\.count: Adam's step -1: expected 0 to"):
        step_in(tmp_path)
    (tmp_path / "opt_states_0.no_prefix_2.count" / "0").unlink()
    with pytest.raises(InputError, match="chunk 0 is missing"):
        step_in(tmp_path)
