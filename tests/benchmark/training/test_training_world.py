"""The world of a run: prepared before the processes meet, and left well."""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.number_formats import Precision
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.run_record.phases import Phase, PhaseLog
from benchmark.training import training_world as module
from benchmark.training.engine.distributed import World
from benchmark.training.engine.rank_environment import Environment
from benchmark.training.training_world import settle_attention, settle_kernels, training_world
from model.decoder_sizes import DecoderSizes
from model.passes.attention import CudnnFlash, Repeated
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import MODEL

RUN: tuple[DecoderSizes, System, Precision] = (GPT3_175B.model, SYSTEMS["dgxh100_n64"], "bf16")
MESH: Any = None


class Phases:
    def __init__(self) -> None:
        self.entered: list[tuple[Phase, bool, str]] = []

    def enter(self, phase: Phase, steps: int) -> None:
        """Note the phase, whether the process group exists, and a variable."""
        self.entered.append((phase, dist.is_initialized(), os.environ.get("TRIED", "")))


@pytest.fixture(autouse=True)
def kernels_as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def test_processes_are_prepared_then_meet_then_prove_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    phases, lines = Phases(), list[str]()
    monkeypatch.setenv("TRIED", "")
    monkeypatch.delenv("TRIED")
    monkeypatch.setattr(module, "settle_attention", lambda *_: "the kernel is right")
    with training_world(
        system_of(1),
        Environment(0, 1, 0),
        deterministic=True,
        attention=(MODEL, "bf16"),
        variables={"TRIED": "yes"},
        phases=PhaseLog(phases),
        note=lines.append,
    ) as world:
        assert (world.rank, world.size, dist.is_initialized()) == (0, 1, True)
        assert torch.are_deterministic_algorithms_enabled()
    assert phases.entered == [("join", False, "yes"), ("load", True, "yes")]
    assert lines == ["the kernel is right"]
    assert not dist.is_initialized()


def test_checks_compute_no_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "settle_attention", lambda *_: pytest.fail("no attention is computed"))
    with training_world(system_of(1), Environment(0, 1, 0)):
        assert not torch.are_deterministic_algorithms_enabled()


def test_the_kernel_is_proved_on_the_shape_of_this_ranks_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, refused = list[Any](), list[Any]()

    def proved(*device_and_dtype: Any, **shape: int) -> str:
        asked.append((*device_and_dtype, shape))
        return "attention by CudnnFlash"

    monkeypatch.setattr(module, "proved_attention", proved)
    monkeypatch.setattr(module, "refuse_kernel", refused.append)
    gpu = torch.device("cuda", 0)
    assert settle_attention(*RUN, World(0, 512, gpu, MESH)) == "attention by CudnnFlash"
    assert asked == [(gpu, torch.bfloat16, GPT3_175B.model, {"ranks": 4, "batch": 2})]
    assert refused == []
    model, system, precision = RUN
    settle_attention(model, dataclasses.replace(system, cudnn_attention=False), precision, World(0, 512, gpu, MESH))
    assert refused == [CudnnFlash(), Repeated(CudnnFlash())]


def test_kernels_are_compiled_on_the_shape_of_this_ranks_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[Any]()

    def proved(sizes: Any, **shape: Any) -> str:
        calls.append((sizes, shape))
        return "compiled"

    monkeypatch.setattr(module, "prove_kernels", proved)
    monkeypatch.setattr(module, "set_environment", calls.append)
    monkeypatch.setattr(module, "cache_of_kernels", lambda: {"CACHE": "here"})
    gpu = torch.device("cuda", 0)
    model, system, precision = RUN
    assert settle_kernels(*RUN, World(0, 512, gpu, MESH), deterministic=True) == "compiled"
    shape = {"ranks": 4, "batch": 2, "dtype": torch.bfloat16, "device": gpu, "deterministic": True}
    assert calls == [{"CACHE": "here"}, (model, shape | {"linear": "plain", "terms": 1})]
    assert settle_kernels(model, system, "fp8", World(0, 512, gpu, MESH), deterministic=True) == "compiled"
    assert calls[2:] == [{"CACHE": "here"}, (model, shape | {"linear": "fp8", "terms": 2})]
    without = dataclasses.replace(system, compiled_kernels=False)
    assert settle_kernels(model, without, precision, World(0, 512, gpu, MESH), deterministic=False) == ""
    assert len(calls) == 4


def test_a_cpu_has_nothing_to_settle() -> None:
    world = World(0, 1, torch.device("cpu"), MESH)
    assert settle_attention(*RUN, world) == settle_kernels(*RUN, world, deterministic=False) == ""
