"""Measured rates take the table's place."""

from dataclasses import dataclass

import pytest

from benchmark.planning.run_plans.calibrated_constants import calibrated_constants
from benchmark.planning.step_model.machine_constants import committed_constants, rates, values_of
from benchmark.planning.step_model.operator_times import attention_s, matmul_s
from stage.errors import InputError

CONSTANTS = committed_constants()
TABLE = rates(values_of(CONSTANTS), "H100 SXM", "ours")


@dataclass
class Product:
    role: str
    tokens: int
    inputs: int
    outputs: int
    seconds: float


@dataclass
class Attention:
    role: str
    samples: int
    heads: int
    sequence: int
    head_size: int
    seconds: float


@dataclass
class Pass:
    bytes: int
    seconds: float


@dataclass
class Device:
    accelerator: str
    matmuls: tuple[Product, ...] = ()
    attention: tuple[Attention, ...] = ()
    elementwise: tuple[Pass, ...] = ()


def device(slower: float) -> Device:
    """One that takes ``slower`` times what the table says for everything."""
    product_s = matmul_s(TABLE.device, TABLE.common, (2048, 9216, 12288), fp8=False, extra=0)
    forward_s, backward_s = attention_s(
        TABLE.device, TABLE.common, sequences=1, heads=24, seq=2048, head=128, kind="cudnn"
    )
    return Device(
        "H100 SXM",
        (Product("forward", 2048, 12288, 9216, slower * product_s),),
        (
            Attention("forward", 1, 24, 2048, 128, slower * forward_s),
            Attention("backward", 1, 24, 2048, 128, slower * backward_s),
        ),
        (Pass(10**9, slower * 1e9 / TABLE.device.memory_tb_s / 1e12),),
    )


def test_a_slower_device_has_lower_rates() -> None:
    found = calibrated_constants(CONSTANTS, device(1.25))
    for key in ("matmul_bf16", "attention_forward", "attention_backward", "memory_tb_s"):
        name = f"accelerators.H100 SXM.{key}"
        assert found[name].value == pytest.approx(CONSTANTS[name].value / 1.25)
        assert found[name].low < found[name].value < found[name].high
        assert found[name].source == "calibration.json"
    changed = {name for name in found if found[name] != CONSTANTS[name]}
    assert len(changed) == 4


def test_what_was_not_measured_stays() -> None:
    assert calibrated_constants(CONSTANTS, Device("H100 SXM")) == CONSTANTS


def test_no_measurements() -> None:
    with pytest.raises(InputError, match="calibration of cpu: there are constants of A100-80GB"):
        calibrated_constants(CONSTANTS, Device("cpu"))
    with pytest.raises(InputError, match=r"matmul_bf16 .* times the table's; measure again"):
        calibrated_constants(CONSTANTS, device(1e-3))
