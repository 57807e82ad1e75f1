"""Abilities of a device: they work on a CPU, and kernels and steps that are a little wrong are found."""

import pytest
import torch

from benchmark.planning.first_contact import features, fp8_match, training_match
from benchmark.planning.first_contact.features import FEATURES
from benchmark.planning.first_contact.training_match import TrainedSteps, compared
from benchmark.planning.slice import device_rates
from benchmark.planning.slice.fp8_rates import Fp8Layer
from foundation.errors import CheckFailed
from tests.benchmark.tiny import in_processes
from tests.support import forked_command

CPU = torch.device("cpu")


def _found_on_a_cpu() -> dict[str, str]:
    """Small: what takes long is tried as often as it has to be."""
    setattr(training_match, "STEPS", 2)  # noqa: B010
    setattr(training_match, "LAYERS", 1)  # noqa: B010
    device_rates.REPETITION_S["cpu"] = 1e-5
    return {name: feature.attempt(CPU) for name, feature in FEATURES.items() if feature.on_cpu}


@pytest.mark.slow
def test_all_that_a_cpu_can_works_on_it() -> None:
    (found,) = in_processes(1, _found_on_a_cpu)
    assert list(found) == [name for name in FEATURES if name not in ("cudnn attention", "efficient attention")]
    same = "2 steps, losses within 0, norms within 0 of the CPU's"
    for name in ("training in FP32", "training in BF16", "training in FP8"):
        assert found.pop(name) == f"rehearsal: {same}; rehearsal_llama: {same}; saved and loaded to the bit"
    assert found.pop("repeatable") == "the same bits twice"
    assert found.pop("shared heads").count("errors up to 0.00") == 2
    products = found.pop("FP8 products")
    assert products.startswith("rehearsal: forward error 0.00") and "rehearsal_llama: " in products
    assert products.count(" TFLOP/s (BF16 ") == 2 * 3
    assert all("errors: " in words for words in found.values()), found


def test_command_tells_what_it_found_or_why_it_failed() -> None:
    for device, status, said in (("cpu", 0, "errors: forward"), ("none", 1, "RuntimeError: ")):
        done = forked_command("benchmark.planning.first_contact.features", "gelu", device)
        assert (done.returncode, done.stdout.startswith(f"\n{said}")) == (status, True), done.stdout


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("gelu", torch.relu),
        ("gelu_backward", lambda gradient, x: gradient),
        ("add_product", lambda sums, left, right: None),
        ("put_product", lambda sums, left, right: sums.zero_()),
        ("put_product", lambda sums, left, right: None),  # it stays NaN
    ],
)
def test_a_kernel_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch, name: str, broken: object) -> None:
    monkeypatch.setattr(features, name, broken)
    tried = features.gelus if "gelu" in name else features.products
    with pytest.raises(CheckFailed, match=r"relative error .*, expected at most"):
        tried(CPU)


def test_fp8_products_that_are_wrong_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    products = Fp8Layer.products
    monkeypatch.setattr(
        Fp8Layer, "exact", lambda layer, role: 1.03 * products(layer, weight_gradients=True)[role]().double()
    )
    with pytest.raises(CheckFailed, match=r"rehearsal, .*, forward: relative error 0.029, expected at most 0.02"):
        fp8_match.fp8_products(CPU)


DUE = TrainedSteps([6.9, 6.8, 6.7, 6.6], [3.0, 2.0, 2.0, 1.0], {})


@pytest.mark.parametrize(
    ("losses", "norms", "said"),
    [
        ([6.9, 6.8, 6.7, 6.603], DUE.norms, "losses of 4 steps are off by 0.00045"),
        (DUE.losses, [3.0, 2.0, 2.0, 1.01], "norms of 4 steps are off by 0.01"),
        ([6.9, 6.8, 6.7, float("nan")], DUE.norms, "losses of 4 steps are off by nan"),
        ([float("nan"), 6.8, 6.7, 6.6], DUE.norms, "losses of 4 steps are off by nan"),
    ],
)
def test_steps_that_are_a_little_wrong_are_found(losses: list[float], norms: list[float], said: str) -> None:
    with pytest.raises(CheckFailed, match=said):
        compared(TrainedSteps(losses, norms, {}), DUE, "fp32")
