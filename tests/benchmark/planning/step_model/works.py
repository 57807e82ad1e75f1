"""Workloads of several tests."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from benchmark.config.benchmarks import GPT3_175B
from benchmark.planning.step_model.machine_constants import Rates, committed_constants
from benchmark.planning.step_model.workload import Layout, Workload
from model.decoder_sizes import BlockProduct, DecoderSizes
from model.llama31_config import Llama31Config

GPT3 = GPT3_175B.model


@dataclasses.dataclass(frozen=True)
class PlainDecoder(DecoderSizes):
    """A published model whose blocks are like GPT-3's, with two tables."""

    num_key_value_heads: int
    ffn_hidden_size: int
    biases: ClassVar[bool] = True
    rotary_positions: ClassVar[bool] = False
    tied: ClassVar[bool] = False
    compiled_kernels: ClassVar[float] = 1.0
    separate_kernels: ClassVar[float] = 1.0

    @property
    def products(self) -> Mapping[str, BlockProduct]:
        H, F, keys = self.hidden_size, self.ffn_hidden_size, self.num_key_value_heads * self.head_size
        return {
            "qkv": BlockProduct(H, {"query": H, "key": keys, "value": keys}),
            "dense": BlockProduct(H, {"output": H}),
            "up": BlockProduct(H, {"up": F}),
            "down": BlockProduct(F, {"down": H}),
        }


def decoder(
    layers: int, hidden: int, heads: int, seq: int, vocab: int, *, kv_heads: int = 0, ffn: int = 0, gated: bool = False
) -> DecoderSizes:
    """A published model; 0: as many heads of keys as of queries, and four times the hidden size."""
    kind = Llama31Config if gated else PlainDecoder
    return kind(layers, hidden, heads, seq, vocab, vocab, kv_heads or heads, ffn or 4 * hidden)


def gpt3_work(stack: str = "nemo", precision: Any = "bf16", accelerator: str = "H100 SXM", **layout: Any) -> Workload:
    """GPT-3 175B as NVIDIA's recipe on 512 devices, unless said otherwise."""
    base = Layout(512, 8, 2048, 1, tensor_parallel=4, pipeline_parallel=8, pipeline_chunks=6)
    return Workload(GPT3, dataclasses.replace(base, **layout), precision, accelerator, stack)


def rates_of(work: Workload) -> Rates:
    """Return the table's constants of the workload's accelerator and stack."""
    return committed_constants().rates(work.accelerator, work.stack, network_gbit_s=work.network_gbit_s)
