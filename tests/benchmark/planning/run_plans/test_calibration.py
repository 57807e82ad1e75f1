import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmark.planning.run_plans.calibration import (
    FORMAT,
    LARGEST_FILE,
    AttentionTime,
    Calibration,
    CollectiveTime,
    ElementwiseTime,
    LaunchTime,
    MatmulTime,
    SliceStep,
    read_calibration,
    write_calibration,
)
from stage.errors import InputError

CALIBRATION = Calibration(
    format=FORMAT,
    benchmark="gpt3_175b",
    device="NVIDIA H100 80GB HBM3",
    accelerator="H100 SXM",
    true_width=True,
    precision="bf16",
    torch="2.11.0",
    cuda="12.8",
    nccl="2.27.3",
    matmuls=(MatmulTime("h_to_4h", "forward", 4, 2048, 12288, 12288, 0.001),),
    attention=(AttentionTime("backward", 1, 24, 2048, 128, 0.001),),
    elementwise=(ElementwiseTime("copy", 2_000_000_000, 0.001),),
    launch=LaunchTime(5e-6, 2e-6),
    collectives=(CollectiveTime("all-gather", 4, 1 << 20, 1e-4),),
    step=SliceStep(2, 12288, 4, 1, 1, 1, 1, 8, "selective", 1.0, 500.0, {"matmul": 0.8}, None, 0.01, None, None),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    write_calibration(CALIBRATION, path)
    assert read_calibration(path) == CALIBRATION
    assert [one.name for one in tmp_path.iterdir()] == ["calibration.json"]


def test_rates_follow_from_times() -> None:
    assert CALIBRATION.matmuls[0].tflops == pytest.approx(2e-12 * 2048 * 12288**2 / 0.001)
    assert CALIBRATION.attention[0].tflops == pytest.approx(8e-12 * 24 * 2048**2 * 128 / 0.001)
    assert CALIBRATION.elementwise[0].gb_per_s == pytest.approx(2000)


def changed(**fields: Any) -> dict[str, Any]:
    return {**dataclasses.asdict(CALIBRATION), **fields}


def matmul(**fields: Any) -> dict[str, Any]:
    return {**dataclasses.asdict(CALIBRATION.matmuls[0]), **fields}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "Expected `object`, got `array`; expected the calibration.json of a slice; change --calibration"),
        (changed(format=7), "format 7, expected 1; run the slice again"),
        (changed(true_width=1), r"Expected `bool`, got `int` - at `\$\.true_width`"),
        (changed(launch={"host_s": "x", "device_s": 1}), r"Expected `float`, got `str` - at `\$\.launch\.host_s`"),
        (changed(launch={"host_s": -1.0, "device_s": 1}), "launch.host_s: got -1; expected a number of at least 0"),
        (changed(launch={"host_s": float("nan"), "device_s": 1}), "JSON is malformed"),
        (changed(launch={"host_s": "inf", "device_s": 1}), r"Expected `float`, got `str` - at `\$\.launch\.host_s`"),
        (changed(launch={"host_s": 1.0}), r"missing required field `device_s` - at `\$\.launch`"),
        (changed(matmuls={}), r"Expected `array`, got `object` - at `\$\.matmuls`"),
        (changed(matmuls=[matmul(role="back")]), r"Invalid enum value 'back' - at `\$\.matmuls\[0\]\.role`"),
        (changed(matmuls=[matmul(tokens=0)]), r"matmuls\[0\].tokens: got 0; expected 1 to 1,125,899,906,842,624"),
        (changed(matmuls=[matmul(tokens=1 << 60)]), r"matmuls\[0\].tokens: got 1152921504606846976; expected 1 to"),
        (changed(matmuls=[matmul(tokens=10**40)]), r"matmuls\[0\].tokens: got 10{40}; expected 1 to"),
        (changed(matmuls=[matmul(seconds=0)]), r"matmuls\[0\].seconds: got 0; expected a number above 0"),
        (changed(matmuls=[matmul(seconds=10**400)]), r"Number out of range - at `\$\.matmuls\[0\]\.seconds`"),
        (changed(collectives=[{"kind": "send"}]), r"missing required field `ranks` - at `\$\.collectives\[0\]`"),
        (changed(nccl=None), r"Expected `str`, got `null` - at `\$\.nccl`"),
    ],
)
def test_another_form_is_refused_with_the_field(found: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(found))
    with pytest.raises(InputError, match=message):
        read_calibration(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "truncated; expected the calibration.json of a slice; change --calibration"),
        (b"\xff\xfe", "JSON is malformed"),
        (b"[" * 100_000, "got `array`"),
        (b"", "truncated"),
        (b" " * (LARGEST_FILE + 1), "4,194,305 bytes, more than 4,194,304"),
    ],
)
def test_what_is_no_json_or_too_large_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_calibration(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, message in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "folder, not a regular file"),
        (pipe, "pipe, not a regular file"),
        (Path("/dev/zero"), "device, not a regular file"),
    ):
        with pytest.raises(InputError, match=message):
            read_calibration(path)
