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


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "calibration: got list; expected the fields format, benchmark, device"),
        (changed(format=7), "format 7, expected 1; run the slice again"),
        (changed(more=1), "got accelerator, .*more.*; expected the fields"),
        (changed(true_width=1), "calibration.true_width: got 1; expected true or false"),
        (changed(launch={"host_s": "x", "device_s": 1}), "launch.host_s: got 'x'; expected a number of at least 0"),
        (changed(launch={"host_s": -1.0, "device_s": 1}), "launch.host_s: got -1.0; expected a number"),
        (changed(launch={"host_s": float("nan"), "device_s": 1}), "launch.host_s: got nan; expected a number"),
        (changed(launch={"host_s": 1.0}), "calibration.launch: got host_s; expected the fields host_s, device_s"),
        (changed(matmuls={}), "calibration.matmuls: got {}; expected a list"),
        (changed(collectives=[{"kind": "send"}]), r"collectives\[0\]: got kind; expected the fields kind, ranks"),
        (changed(nccl=None), "calibration.nccl: got None; expected text"),
    ],
)
def test_another_form_is_refused_with_the_field(found: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(found))
    with pytest.raises(InputError, match=message):
        read_calibration(path)


def test_no_file_no_json_and_too_large_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    with pytest.raises(InputError, match="No such file"):
        read_calibration(path)
    path.write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        read_calibration(path)
    path.write_bytes(b" " * (LARGEST_FILE + 1))
    with pytest.raises(InputError, match="expected at most 4,194,304"):
        read_calibration(path)
