from dataclasses import replace
from typing import Any

import pytest
import torch
from benchmark.training.engine.settled_attention import settle_attention

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import Precision
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.training.engine import settled_attention
from benchmark.training.engine.distributed import World
from model.decoder_sizes import DecoderSizes
from model.passes.attention import CudnnFlash

RUN: tuple[DecoderSizes, System, Precision] = (GPT3_175B.model, SYSTEMS["dgxh100_n64"], "bf16")
MESH: Any = None


def test_the_kernel_is_proved_on_the_shape_of_this_ranks_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, refused = list[Any](), list[Any]()

    def proved(*device_and_dtype: Any, **shape: int) -> str:
        asked.append((*device_and_dtype, shape))
        return "attention by CudnnFlash"

    monkeypatch.setattr(settled_attention, "proved_attention", proved)
    monkeypatch.setattr(settled_attention, "refuse_kernel", refused.append)
    gpu = torch.device("cuda", 0)
    assert settle_attention(*RUN, World(0, 512, gpu, MESH)) == "attention by CudnnFlash"
    assert asked == [(gpu, torch.bfloat16, GPT3_175B.model, {"ranks": 4, "batch": 2})]
    assert refused == []
    model, system, precision = RUN
    settle_attention(model, replace(system, cudnn_attention=False), precision, World(0, 512, gpu, MESH))
    assert [type(kernel) for kernel in refused] == [CudnnFlash]


def test_a_cpu_has_nothing_to_settle() -> None:
    assert settle_attention(*RUN, World(0, 1, torch.device("cpu"), MESH)) == ""
