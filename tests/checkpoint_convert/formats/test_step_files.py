"""What the files beside the arrays tell: Adam's step, the heads, and which weights are the FP32 ones."""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint_convert.formats.array_table import MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.axis_sizes import attention_heads
from checkpoint_convert.formats.step_files import (
    adam_step,
    common_files,
    counter_shapes,
    fp32_weights_prefix,
    is_counter,
    optimizer_settings,
    paxml_adam_step,
    run_steps,
    write_counters,
)
from checkpoint_convert.formats.zarr_arrays import create_array, zarr_array
from foundation.errors import InputError
from foundation.outputs.manifest import Recipe, Source, made_by, write_manifest


def test_step_of_no_common_file_and_of_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "common.pt"
    assert adam_step(tmp_path) is None
    for dtype in ("fp32", "bf16"):
        path.write_bytes(common_files(dtype, 192)["common.pt"])
        assert adam_step(tmp_path) == 192
    steps: tuple[object, ...] = (None, "4000", True, torch.tensor(4000), argparse.Namespace(step=4000))
    contents: list[dict[str, object]] = [{}, {"optimizer": {"param_groups": []}}]
    contents += [{"optimizer": {"param_groups": [{"step": step}]}} for step in steps]
    for content in contents:
        torch.save(content, path)
        with pytest.raises(InputError, match=r"not a checkpoint's common\.pt"):
            adam_step(tmp_path)


def test_fp32_weights_are_the_master_copy_where_there_is_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no metadata\.json in it"):
        fp32_weights_prefix(tmp_path)
    (tmp_path / "metadata.json").write_text("{}")
    for prefix in (WEIGHTS, MASTER_WEIGHTS):
        (tmp_path / f"{prefix}x").mkdir()
        assert fp32_weights_prefix(tmp_path) == prefix


def overwrite(path: Path, shape: tuple[int, ...], dtype: str, value: object) -> None:
    shutil.rmtree(path)
    create_array(path, shape, dtype, shape).write(value).result()


def step_in(folder: Path) -> int | None:
    return paxml_adam_step(folder, {path.name: zarr_array(path) for path in folder.iterdir()})


def test_step_of_the_counters_is_that_of_the_moments(tmp_path: Path) -> None:
    assert step_in(tmp_path) is None
    write_counters(tmp_path, 4000, 3)
    assert {path.name for path in tmp_path.iterdir()} == set(filter(is_counter, counter_shapes(3)))
    assert not is_counter("opt_states_0.no_prefix_2.m.params.lm.final_ln.bias")
    overwrite(tmp_path / "step", (), "uint32", np.uint32(4001))  # an update was skipped
    for kept in ("*_2.count", "*.count", "step"):
        assert step_in(tmp_path) == (4001 if kept == "step" else 4000)
        for path in tmp_path.glob(kept):
            shutil.rmtree(path)


COUNTS = "opt_states_0.p#96#i-1_2.count"


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "value", "complaint"),
    [
        (COUNTS, (2,), "int32", np.array([4000, 3999], np.int32), r"steps differ \(.*_2\.count.*\[3999, 4"),
        (COUNTS, (2,), "float32", np.ones(2, np.float32), r"\[2\] float32, expected a whole number, or one per layer"),
        (COUNTS, (1 << 20,), "int32", np.int32(4000), "expected a whole number"),
        ("step", (), "int32", np.int32(-1), "step: Adam's step -1: expected 0 to"),
        ("opt_states_0.no_prefix_2.count", (), "int32", np.int32(4001), r"steps differ \(.*no_prefix_2.*\[4001\]"),
    ],
)
def test_counters_that_cannot_be_are_refused(
    name: str, shape: tuple[int, ...], dtype: str, value: object, complaint: str, tmp_path: Path
) -> None:
    write_counters(tmp_path, 4000, 2)
    overwrite(tmp_path / name, shape, dtype, value)
    if name == "step":
        for path in tmp_path.glob("*.count"):
            shutil.rmtree(path)
    with pytest.raises(InputError, match=complaint):
        step_in(tmp_path)


def write_record(output: Path, options: dict[str, Any], inputs: list[Source]) -> None:
    write_manifest(output, made_by(Recipe("x", options, inputs), [], wall_s=1.0))


def test_heads_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = Path("ckpt")
    write_record(Path("paxml"), {"heads": 12}, [])
    write_record(checkpoint, {}, [Source("paxml", 1, 1, "md5:0")])  # whose name here may be another checkpoint's
    with pytest.raises(InputError, match=r"pass --heads \(hidden size 36\)"):
        attention_heads(checkpoint, 36, None)
    assert attention_heads(checkpoint, 12288, None) == 96  # the benchmark's model
    for heads in (5, 0, -4):
        with pytest.raises(InputError, match=f"--heads {heads}: does not divide the hidden size 36"):
            attention_heads(checkpoint, 36, heads)
    write_record(checkpoint, {"heads": 4}, [])
    assert attention_heads(checkpoint, 36, None) == attention_heads(checkpoint, 36, 4) == 4
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(tmp_path / "ckpt")
    (tmp_path / "ckpt").mkdir(exist_ok=True)
    assert attention_heads(tmp_path / "elsewhere" / "link", 12288, None) == 4
    with pytest.raises(InputError, match=r"--heads 6: .* was made by a model of 4 heads; leave --heads out"):
        attention_heads(checkpoint, 36, 6)
    write_record(checkpoint, {"heads": "four"}, [])
    with pytest.raises(InputError, match=r"ckpt\.manifest\.json: 'four' heads, expected a number"):
        attention_heads(checkpoint, 36, None)


def test_heads_and_steps_of_a_run(trained: Path, tmp_path: Path) -> None:
    assert attention_heads(trained, 36, None) == 4
    assert run_steps(trained) == (3005, 4004)
    step = tmp_path / "run" / "checkpoints" / "step_00000001"
    step.mkdir(parents=True)
    assert run_steps(step) == (None, None)
    progress = json.loads((trained / "progress.json").read_text())
    for damage, complaint in (({"steps": "5"}, "got `str`"), ({"global_batch_size": 0}, "a batch of 0")):
        (step / "progress.json").write_text(json.dumps({**progress, **damage}))
        with pytest.raises(InputError, match=complaint):
            run_steps(step)
    (step / "progress.json").write_text(json.dumps(progress))
    assert run_steps(step) == (3005, None)
    (tmp_path / "run" / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"config\.json: .*missing required field.*not a run's configuration"):
        run_steps(step)


def test_more_updates_than_training_steps_are_refused(tmp_path: Path) -> None:
    write_counters(tmp_path, 4000, 2)
    overwrite(tmp_path / "step", (), "uint32", np.uint32(7))
    with pytest.raises(InputError, match=r"steps differ \(.*step \[7\]"):
        step_in(tmp_path)


def test_settings_of_all_parameter_groups(tmp_path: Path) -> None:
    groups = [{"lr": 0.5, "betas": (0.9, 0.95), "step": 3}, {"lr": 0.25, "step": 4, "params": [[1], {"a": 1}]}]
    torch.save({"optimizer": {"optimizer": {"param_groups": groups}}}, tmp_path / "common.pt")
    assert optimizer_settings(tmp_path) == {
        "group 0 lr": "0.5",
        "group 0 betas 0": "0.9",
        "group 0 betas 1": "0.95",
        "group 0 step": "3",
        "group 1 lr": "0.25",
        "group 1 step": "4",
        "group 1 params 0": "list",
        "group 1 params 1": "dict",
    }
    assert adam_step(tmp_path) == 3
