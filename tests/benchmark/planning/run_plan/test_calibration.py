"""``calibration.json``: what is refused, and the rates that take the table's place."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.benchmarks import LLAMA31_8B
from benchmark.config.number_formats import Precision
from benchmark.planning.run_plan.calibration import (
    FORMAT,
    LARGEST_FILE,
    MOST_LOST,
    AttentionTime,
    Calibration,
    CollectiveTime,
    ElementwiseTime,
    LaunchTime,
    MatmulTime,
    SliceStep,
    calibrated_rates,
    read_calibration,
    write_calibration,
)
from benchmark.planning.step_model.machine_constants import Constant, committed_constants
from benchmark.planning.step_model.operation_times import attention_s, matmul_s
from benchmark.planning.step_model.simulated_step import simulate_step
from benchmark.planning.step_model.stacks import Feature
from benchmark.planning.step_model.workload import Layout, Workload
from foundation.errors import InputError

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
TABLE = committed_constants().rates("H100 SXM", "ours")
NOTHING = dataclasses.replace(CALIBRATION, matmuls=(), attention=(), elementwise=())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    write_calibration(CALIBRATION, path)
    assert read_calibration(path) == CALIBRATION
    assert [one.name for one in tmp_path.iterdir()] == ["calibration.json"]
    assert CALIBRATION.matmuls[0].tflops == pytest.approx(2e-12 * 2048 * 12288**2 / 0.001)
    assert CALIBRATION.attention[0].tflops == pytest.approx(8e-12 * 24 * 2048**2 * 128 / 0.001)
    assert CALIBRATION.elementwise[0].gb_per_s == pytest.approx(2000)


def changed(**fields: Any) -> bytes:
    return json.dumps({**dataclasses.asdict(CALIBRATION), **fields}).encode()


def matmul(**fields: Any) -> bytes:
    return changed(matmuls=[{**dataclasses.asdict(CALIBRATION.matmuls[0]), **fields}])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "Expected `object`, got `array`; expected the calibration.json of a slice; change --calibration"),
        (changed(format=7), r"Invalid enum value 7 - at `\$\.format`; .* run the slice again"),
        (changed(launch={"host_s": -1.0, "device_s": 1}), r"Expected `float` >= 0.* at `\$\.launch\.host_s`"),
        (changed(launch={"host_s": float("nan"), "device_s": 1}), "JSON is malformed"),
        (matmul(role="back"), r"Invalid enum value 'back' - at `\$\.matmuls\[0\]\.role`"),
        (matmul(tokens=0), r"Expected `int` >= 1 - at `\$\.matmuls\[0\]\.tokens`"),
        (matmul(tokens=1 << 60), r"Expected `int` <= 1125899906842624 - at"),
        (matmul(seconds=0), r"Expected `float` > 0.* - at `\$\.matmuls\[0\]\.seconds`"),
        (matmul(seconds=10**400), r"Number out of range - at `\$\.matmuls\[0\]\.seconds`"),
        (b"{", "truncated; expected the calibration.json of a slice; change --calibration"),
        (b"[" * 100_000, "got `array`"),
        (b" " * (LARGEST_FILE + 1), "4,194,305 bytes, more than 4,194,304"),
    ],
    ids=range(12),
)
def test_another_form_is_refused_with_the_field(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_calibration(path)


def device(slower: float) -> Calibration:
    """Return the calibration of a device that takes ``slower`` times what the table says for everything."""
    product_s = matmul_s(TABLE, (2048, 9216, 12288))
    forward_s, backward_s = attention_s(TABLE, sequences=1, heads=24, seq=2048, head=128, kind="cudnn")
    return dataclasses.replace(
        NOTHING,
        matmuls=(MatmulTime("qkv", "forward", 4, 2048, 12288, 9216, slower * product_s),),
        attention=(
            AttentionTime("forward", 1, 24, 2048, 128, slower * forward_s),
            AttentionTime("backward", 1, 24, 2048, 128, slower * backward_s),
        ),
        elementwise=(ElementwiseTime("copy", 10**9, slower * 1e9 / TABLE.device.memory_tb_s / 1e12),),
    )


def test_a_slower_device_has_lower_rates() -> None:
    before, after = (dict(rates.constants) for rates in (TABLE, calibrated_rates(TABLE, device(1.25))))
    for key in ("matmul_bf16", "attention_forward", "attention_backward", "memory_tb_s"):
        name = f"accelerators.H100 SXM.{key}"
        assert after[name] == pytest.approx(before[name] / 1.25)
        assert after[name].low < after[name] < after[name].high
        assert after[name].source == "calibration.json"
    assert sum(after[name] != before[name] for name in after) == 4
    assert calibrated_rates(TABLE, NOTHING) == TABLE
    with pytest.raises(InputError, match=r"H100 SXM: matmul_bf16 .* times the table's; measure again"):
        calibrated_rates(TABLE, device(1e-3))


def test_an_fp8_slice_sets_the_rates_of_both_formats() -> None:
    """Its products of either format are twice and four times as slow as the table's, its transposes ten times as slow
    as copies."""
    sizes = 2048, 9216, 12288
    fp8_s, bf16_s = (matmul_s(TABLE, sizes, fp8=fp8) for fp8 in (True, False))
    memory_bytes_s = TABLE.device.memory_tb_s * 1e12
    measured = dataclasses.replace(
        NOTHING,
        precision="fp8",
        matmuls=(
            MatmulTime("qkv", "forward", 4, 2048, 12288, 9216, 2 * fp8_s, "fp8"),
            MatmulTime("output", "forward", 4, 2048, 12288, 9216, 4 * bf16_s),
        ),
        elementwise=(
            ElementwiseTime("copy", 10**9, 1e9 / memory_bytes_s),
            ElementwiseTime("fp8 transpose", 10**9, 10 * 1e9 / memory_bytes_s),
        ),
    )
    device, common = (calibrated_rates(TABLE, measured).device, calibrated_rates(TABLE, measured).common)
    assert (device.matmul_fp8, device.matmul_bf16) == pytest.approx(
        (TABLE.device.matmul_fp8 / 2, TABLE.device.matmul_bf16 / 4)
    )
    assert (device.memory_tb_s, common.byte_transposes) == pytest.approx((TABLE.device.memory_tb_s, 10))


def test_messages_that_were_seen_hidden_narrow_the_plan() -> None:
    step = dataclasses.replace(CALIBRATION.step, by_kind_s={"communication": 0.2}, exposed_communication_s=0.05)
    measured = dataclasses.replace(NOTHING, step=step)
    stack = calibrated_rates(TABLE, measured).stack
    hidden, slowdown = stack.tensor_hidden, stack.overlap_slowdown
    assert (hidden.low, hidden, hidden.high) == pytest.approx((0.65, 0.75, 0.85))
    assert slowdown < slowdown.high == 0.35
    nemo = committed_constants().rates("H100 SXM", "nemo")
    assert calibrated_rates(nemo, measured) == nemo
    alone = dataclasses.replace(step, tensor_parallel=1, data_parallel=2)
    assert calibrated_rates(TABLE, dataclasses.replace(NOTHING, step=alone)) == TABLE


@pytest.mark.parametrize(
    ("precision", "of_step", "of_model", "without"),
    [
        ("bf16", {}, {}, ()),
        ("fp8", {}, {}, ()),
        ("bf16", {"compiled_kernels": False}, {}, ("compiled-kernels",)),
        ("bf16", {"seq_length": 1024}, {"seq_length": 1024}, ()),
    ],
    ids=["BF16", "FP8", "no compiled kernels", "shorter samples"],
)
def test_a_slice_on_one_gpu_sets_the_losses(
    precision: Precision, of_step: dict[str, Any], of_model: dict[str, Any], without: tuple[Feature, ...]
) -> None:
    """They are the share of its passes that no part accounts for at the measured rates."""
    step = dataclasses.replace(CALIBRATION.step, tensor_parallel=1, **of_step)

    def losses(step_s: float, **fields: Any) -> Constant:
        changes = {"benchmark": "llama31_8b", "precision": precision, **fields}
        measured = dataclasses.replace(NOTHING, step=dataclasses.replace(step, step_s=step_s), **changes)
        return calibrated_rates(TABLE, measured).stack.losses

    work = Workload(
        dataclasses.replace(LLAMA31_8B.model, num_layers=2, **of_model),
        Layout(1, 1, 8, 1, recompute="selective", fp8_weight_gradients=False),
        precision,
        "H100 SXM",
        "ours",
        without=without,
    )

    def step_s(share: float) -> float:
        return simulate_step(work, TABLE.changed({"stacks.ours.losses": Constant(share, 0.0, 1.0, "none")})).total

    found = losses(step_s(0.05))
    assert (found.low, found, found.high) == pytest.approx((0.03, 0.05, 0.07))
    assert losses(step_s(0.0) / 2) == 0.0
    assert losses(100.0) == MOST_LOST
    for fields in ({"true_width": False}, {"precision": "fp32"}, {"benchmark": "another"}):
        assert losses(step_s(0.05), **fields) == TABLE.stack.losses
