import dataclasses
import json
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
        (changed(format=7), r"Invalid enum value 7 - at `\$\.format`; .* run the slice again"),
        (changed(launch={"host_s": -1.0, "device_s": 1}), r"Expected `float` >= 0.* at `\$\.launch\.host_s`"),
        (changed(launch={"host_s": float("nan"), "device_s": 1}), "JSON is malformed"),
        (changed(launch={"host_s": 1.0}), r"missing required field `device_s` - at `\$\.launch`"),
        (changed(matmuls=[matmul(role="back")]), r"Invalid enum value 'back' - at `\$\.matmuls\[0\]\.role`"),
        (changed(matmuls=[matmul(tokens=0)]), r"Expected `int` >= 1 - at `\$\.matmuls\[0\]\.tokens`"),
        (changed(matmuls=[matmul(tokens=1 << 60)]), r"Expected `int` <= 1125899906842624 - at"),
        (changed(matmuls=[matmul(seconds=0)]), r"Expected `float` > 0.* - at `\$\.matmuls\[0\]\.seconds`"),
        (changed(matmuls=[matmul(seconds=10**400)]), r"Number out of range - at `\$\.matmuls\[0\]\.seconds`"),
    ],
)
def test_another_form_is_refused_with_the_field(found: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(found))
    with pytest.raises(InputError, match=message):
        read_calibration(path)


def test_what_is_no_json_too_large_or_no_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    for content, message in (
        (b"{", "truncated; expected the calibration.json of a slice; change --calibration"),
        (b"[" * 100_000, "got `array`"),
        (b" " * (LARGEST_FILE + 1), "4,194,305 bytes, more than 4,194,304"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_calibration(path)
    with pytest.raises(InputError, match="folder, not a regular file"):
        read_calibration(tmp_path)
