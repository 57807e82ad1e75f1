"""Made-up offending code: each kind is found, with its line."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmark.planning.fake_device.device_rules import DeviceFault, DeviceRules, only_on_cpus
from tests.benchmark.planning.fake_device.on_fake_gpu import on_fake_gpu

WAITS: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "item": (lambda x: x.sum().item(), "a value is read"),
    "float": (lambda x: float(x.sum()), "a value is read"),
    "branch": (lambda x: 1 if x.sum() > 0 else 2, "a value is read"),
    "tolist": (lambda x: x.tolist(), ".tolist()"),
    "cpu": (lambda x: x.cpu(), "a copy from cuda to cpu without non_blocking"),
    "pageable": (
        lambda x: torch.ones(3).to("cuda", non_blocking=True),
        "a copy from cpu to cuda, by memory that is not pinned",
    ),
    "blocking": (lambda x: torch.ones(3).pin_memory().to(x.device), "a copy from cpu to cuda without non_blocking"),
    "copy_": (lambda x: torch.ones(3).copy_(x[0, :3]), "a copy from cuda to cpu without non_blocking"),
    "from values": (lambda x: torch.tensor([1.0, 2.0], device="cuda"), "a copy from cpu to cuda"),
    "nonzero": (lambda x: x.nonzero(), "nonzero, whose shape depends on values"),
    "masked_select": (lambda x: x.masked_select(x > 0), "masked_select, whose shape"),
    "mask": (lambda x: x[x > 0], "indexing by a mask"),
    "unique": (torch.Tensor.unique, "unique, whose shape"),
    "equal": (lambda x: torch.equal(x, x), "torch.equal"),
    "synchronize": (lambda x: torch.cuda.synchronize(), "torch.cuda.synchronize"),
}


@pytest.mark.parametrize("name", WAITS)
def test_waits_of_the_host_are_refused_with_their_line(name: str) -> None:
    offence, complaint = WAITS[name]
    with on_fake_gpu(strict=True):
        x = torch.zeros(4, 5, device="cuda")
        with pytest.raises(DeviceFault) as refused:
            offence(x)
    place = r"tests/benchmark/planning/fake_device/test_device_rules.py:\d+ in [<>\w]+: the host waits for the device: "
    assert re.match(place + re.escape(complaint), str(refused.value)), refused.value


def test_what_does_not_wait_is_let_through() -> None:
    with on_fake_gpu(strict=True) as tracker:
        pinned = torch.ones(3).pin_memory()
        x = pinned[1:].to("cuda", non_blocking=True) * 2.0 + torch.ones(())
        x.to("cpu", non_blocking=True)
        pinned[1:].copy_(x, non_blocking=True)
        torch.ones(3).sum().to(torch.float64)
        assert (x.to("cuda") is x, x.device.type) == (True, "cuda")
        assert tracker.gpu is not None and tracker.gpu.rules.waits == []


def test_where_the_host_may_wait_it_is_noted() -> None:
    def reads_a_value(x: Tensor) -> list[float]:
        found: list[float] = x.tolist()
        return found

    with on_fake_gpu(strict=True) as tracker:
        assert tracker.gpu is not None
        tracker.gpu.rules.allowed = ("reads_a_value",)
        assert reads_a_value(torch.zeros(3, device="cuda")) == [1.0, 1.0, 1.0]  # made up
        (wait,) = tracker.gpu.rules.waits
    assert wait.what == ".tolist()"
    assert wait.where.endswith("in reads_a_value")


def test_operators_that_only_cpus_have() -> None:
    with on_fake_gpu(), pytest.raises(DeviceFault, match=r"in test_operators.*: aten.histogram.* no kernel for CUDA"):
        torch.histogram(torch.zeros(4, device="cuda"), 3)
    aten = torch.ops.aten
    assert only_on_cpus(aten._scaled_dot_product_flash_attention_for_cpu.default)
    for both in (
        aten.add.Tensor,
        aten.mm.default,
        aten.addmm.dtype_out,
        aten.native_layer_norm.default,
        aten.t.default,
    ):
        assert not only_on_cpus(both)


def test_tensors_on_several_devices() -> None:
    with on_fake_gpu():
        x, on_host = torch.zeros(4, device="cuda"), torch.zeros(4)
        with pytest.raises(DeviceFault, match=r"in test_tensors.*: aten.add.Tensor on tensors of cpu and cuda:0"):
            x + on_host
        with pytest.raises(DeviceFault, match="on tensors of cpu and cuda:0"):
            torch.nn.functional.embedding(on_host.long(), x.view(2, 2))


def test_where_nothing_of_ours_runs() -> None:
    rules = DeviceRules(lambda _: True)
    rules.add_wait("something")
    assert rules.waits[0].where.endswith("in test_where_nothing_of_ours_runs")


def test_installed_code_is_named_by_its_module(tmp_path: Path) -> None:
    """The folder of an installation does not matter: it may be named site-packages."""
    folder = tmp_path / "site-packages" / "benchmark" / "training"
    folder.mkdir(parents=True)
    code = compile("def read(rules):\n    rules.add_wait('a value')\n", str(folder / "step.py"), "exec")
    exec(code, module := {"__name__": "benchmark.training.step"})
    rules = DeviceRules(lambda _: True)
    module["read"](rules)  # type: ignore[operator]
    exec(code, inside := {"__name__": "benchmark.planning.dry_run.examine_rank"})
    inside["read"](rules)  # type: ignore[operator]
    assert rules.waits[0].where == "benchmark/training/step.py:2 in read"
    assert rules.waits[1].where.endswith("in test_installed_code_is_named_by_its_module")
