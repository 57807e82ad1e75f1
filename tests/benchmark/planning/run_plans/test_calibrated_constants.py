"""Measured rates take the table's place."""

import dataclasses

import pytest
from benchmark.planning.step_model.operator_times import attention_s, matmul_s

from benchmark.planning.run_plans.calibrated_constants import calibrated_constants
from benchmark.planning.run_plans.calibration import AttentionTime, Calibration, ElementwiseTime, MatmulTime
from benchmark.planning.step_model.machine_constants import committed_constants, rates, values_of
from stage.errors import InputError
from tests.benchmark.planning.run_plans.test_calibration import CALIBRATION

CONSTANTS = committed_constants()
TABLE = rates(values_of(CONSTANTS), "H100 SXM", "ours")
NOTHING = dataclasses.replace(CALIBRATION, matmuls=(), attention=(), elementwise=())


def device(slower: float) -> Calibration:
    """One that takes ``slower`` times what the table says for everything."""
    product_s = matmul_s(TABLE.device, TABLE.common, (2048, 9216, 12288), fp8=False, extra=0)
    forward_s, backward_s = attention_s(
        TABLE.device, TABLE.common, sequences=1, heads=24, seq=2048, head=128, kind="cudnn"
    )
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
    found = calibrated_constants(CONSTANTS, device(1.25))
    for key in ("matmul_bf16", "attention_forward", "attention_backward", "memory_tb_s"):
        name = f"accelerators.H100 SXM.{key}"
        assert found[name].value == pytest.approx(CONSTANTS[name].value / 1.25)
        assert found[name].low < found[name].value < found[name].high
        assert found[name].source == "calibration.json"
    assert sum(found[name] != CONSTANTS[name] for name in found) == 4
    assert calibrated_constants(CONSTANTS, NOTHING) == CONSTANTS


def test_messages_that_were_seen_hidden_narrow_the_plan() -> None:
    step = dataclasses.replace(CALIBRATION.step, by_kind_s={"communication": 0.2}, exposed_communication_s=0.05)
    found = calibrated_constants(CONSTANTS, dataclasses.replace(NOTHING, step=step))
    hidden, slowdown = found["stacks.ours.tensor_hidden"], found["stacks.ours.overlap_slowdown"]
    assert (hidden.low, hidden.value, hidden.high) == pytest.approx((0.65, 0.75, 0.85))
    assert slowdown.value < slowdown.high == 0.35
    alone = dataclasses.replace(step, tensor_parallel=1)
    assert calibrated_constants(CONSTANTS, dataclasses.replace(NOTHING, step=alone)) == CONSTANTS


def test_no_measurements() -> None:
    with pytest.raises(InputError, match="calibration of cpu: constants exist only for A100-80GB"):
        calibrated_constants(CONSTANTS, dataclasses.replace(NOTHING, accelerator="cpu"))
    with pytest.raises(InputError, match=r"matmul_bf16 .* times the table's; measure again"):
        calibrated_constants(CONSTANTS, device(1e-3))
