"""The table of constants."""

import pytest

from benchmark.config.accelerators import ACCELERATORS
from benchmark.planning.step_model.machine_constants import (
    committed_constants,
    names_in,
    rates,
)
from benchmark.planning.step_model.stacks import STACKS
from stage.errors import InputError
from tests.benchmark.planning.step_model.works import VALUES


def test_every_constant_has_a_source_and_a_range() -> None:
    constants = committed_constants()
    assert all(len(constant.source) >= 7 for constant in constants.values())
    assert all(0 <= constant.low <= constant.value <= constant.high < 1e6 for constant in constants.values())
    assert set(names_in(constants, "stacks")) == set(STACKS)
    for name in names_in(constants, "accelerators"):
        peak = ACCELERATORS[name].peak_tflops
        assert 0.5 * peak < constants[f"accelerators.{name}.matmul_bf16"].value < 0.9 * peak


def test_rates_of_other_machines() -> None:
    usual = rates(VALUES, "H100 SXM", "nemo")
    other = rates(VALUES, "H100 SXM", "nemo", network_gbit_s=200)
    assert usual.network_gb_s == pytest.approx(50 * usual.common.network_share)
    assert other.network_gb_s == pytest.approx(usual.network_gb_s / 2)
    assert other.device == usual.device
    with pytest.raises(InputError, match="no constants of accelerators 'TPU'; there are A100-80GB, H100"):
        rates(VALUES, "TPU", "nemo")
