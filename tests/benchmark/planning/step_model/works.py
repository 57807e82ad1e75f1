"""Workloads of several tests."""

import dataclasses
from typing import Any

from benchmark.planning.step_model.machine_constants import Rates, committed_constants, rates, values_of
from benchmark.planning.step_model.workload import Layout, Transformer, Workload

GPT3 = Transformer(layers=96, hidden=12288, heads=96, seq=2048, vocab=51200)
VALUES = values_of(committed_constants())


def gpt3_work(stack: str = "nemo", precision: Any = "bf16", accelerator: str = "H100 SXM", **layout: Any) -> Workload:
    """GPT-3 175B as NVIDIA's recipe on 512 devices, unless said otherwise."""
    base = Layout(512, 8, 2048, 1, tensor_parallel=4, pipeline_parallel=8, pipeline_chunks=6)
    return Workload(GPT3, dataclasses.replace(base, **layout), precision, accelerator, stack)


def rates_of(work: Workload) -> Rates:
    return rates(VALUES, work.accelerator, work.stack)
