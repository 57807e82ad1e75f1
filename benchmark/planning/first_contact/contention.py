"""Measure how much a message slows the matrix products beside it, on one GPU: ``python -m ...contention RESULT.json``.

A kernel of N CTAs stands in for a message of NCCL: each takes all shared memory of a multiprocessor, so that nothing
else runs there, and copies memory for MESSAGE_US. It is handed over right before a product, as the passes do, with one
hardware queue (benchmark/config/runtime_variables.py). The products are those of a rank of the benchmark's default
system, as PyTorch calls cuBLAS for them. The measurement leaves out that a real message waits for the other ranks.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.systems import DEFAULT_SYSTEM, SYSTEMS
from benchmark.planning.slice.device_rates import event_now, layer_shapes, products
from benchmark.training.engine.rank_environment import set_environment
from foundation.errors import InputError, run_command

CTAS = (4, 8, 16, 24)
MESSAGE_US = 300
"""Microseconds of a stand-in message: about as long as a gather of 100 MB over four GPUs of a machine."""
LEAD_US = 100
"""Microseconds that the device waits while the host hands everything over, which takes less."""
THREADS = 512
TIMES = 5
SOURCE = r"""
extern "C" __global__ void wait(int nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - begin < nanoseconds);
}
extern "C" __global__ void message(const uint4* from, uint4* to, int each, int nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  from += (size_t)blockIdx.x * each;
  to += (size_t)blockIdx.x * each;
  int step = 4 * blockDim.x, at = 0;
  do {
    uint4 values[4];
    for (int k = 0; k < 4; k++) values[k] = from[at + k * blockDim.x + threadIdx.x];
    for (int k = 0; k < 4; k++) to[at + k * blockDim.x + threadIdx.x] = values[k];
    at = at + 2 * step > each ? 0 : at + step;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}
"""


@dataclass(frozen=True)
class Contended:
    """Time of a product beside a message of ``ctas`` CTAs; with 0, the product ran alone."""

    layer: str
    role: str
    ctas: int
    seconds: float
    """Seconds until product and message are both done."""


class StandIn:
    """The kernels that stand in for a message, and the memory that they copy."""

    def __init__(self) -> None:
        compiled: Callable[[str, str], Any] = torch.cuda._compile_kernel
        self._wait, self._message = (compiled(SOURCE, name) for name in ("wait", "message"))
        properties: Any = torch.cuda.get_device_properties()
        self._shared = properties.shared_memory_per_block_optin
        self._message.set_shared_memory_config(self._shared)
        self._from, self._to = (torch.ones(1 << 25, dtype=torch.int32, device="cuda") for _ in range(2))
        self._stream = torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]

    def seconds_beside(self, ctas: int, call: Callable[[], object]) -> float:
        """Return the seconds from the moment when message and product are ready until both are done."""
        self._wait(grid=(1, 1, 1), block=(1, 1, 1), args=[LEAD_US * 1000])
        begin = event_now()
        if ctas:
            self._stream.wait_event(begin)
            floats = self._from.numel() // 4 // ctas // (4 * THREADS) * 4 * THREADS
            args = [self._from, self._to, floats, MESSAGE_US * 1000]
            self._message((ctas, 1, 1), (THREADS, 1, 1), args, self._shared, self._stream)
        call()
        torch.cuda.current_stream().wait_stream(self._stream)
        end = event_now()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000


def contention() -> Iterator[Contended]:
    """Yield every product of the default system's ranks, alone and beside each message. This takes half a minute."""
    system, stand_in = SYSTEMS[DEFAULT_SYSTEM[GPT3_175B.name]], StandIn()
    tokens, device = system.micro_batch_size * GPT3_175B.model.seq_length, torch.device("cuda")
    for layer, (inputs, outputs) in layer_shapes(GPT3_175B.model, system.tensor_parallel).items():
        for role, call in products(tokens, inputs, outputs, device, torch.bfloat16).items():
            times: dict[int, list[float]] = {ctas: [] for ctas in (0, *CTAS)}
            for ctas in (0, *CTAS) * (TIMES + 1):  # one after the other: clocks change with the load
                times[ctas].append(stand_in.seconds_beside(ctas, call))
            for ctas, seconds in times.items():  # the first ones load kernels
                yield Contended(layer, role, ctas, statistics.median(seconds[1:]))


def cost_per_second(products: Iterable[Contended]) -> dict[int, float]:
    """Return, by number of CTAs, the seconds by which a second of message lengthens a block's products, on average.

    At 0 the message costs nothing; at 1 it could as well have run alone.
    """
    of_blocks = [product for product in products if product.layer != "output"]
    alone = {(product.layer, product.role): product.seconds for product in of_blocks if product.ctas == 0}
    costs: dict[int, list[float]] = {}
    for product in of_blocks:
        if product.ctas:
            more_s = product.seconds - alone[product.layer, product.role]
            costs.setdefault(product.ctas, []).append(more_s / (MESSAGE_US * 1e-6))
    return {ctas: statistics.mean(shares) for ctas, shares in costs.items()}


def contention_line(result: Any) -> str:
    """Return one line about the file that ``main`` wrote."""
    costs = ", ".join(f"{cost:.2f} s by {ctas} CTAs" for ctas, cost in result["cost_per_second"]["cublas"].items())
    return f"a second of message costs: {costs}"


def main() -> None:
    if len(sys.argv) != 2:
        raise InputError(f"{len(sys.argv) - 1} arguments, expected the path of the result file: RESULT.json")
    set_environment({"CUDA_DEVICE_MAX_CONNECTIONS": "1"})  # before CUDA starts
    if not torch.cuda.is_available():
        raise InputError(f"PyTorch sees no CUDA device (version {torch.__version__}); run this on a machine with a GPU")
    measured = list(contention())
    costs = {"cublas": cost_per_second(measured)}
    result = {"products": [asdict(product) for product in measured], "cost_per_second": costs}
    Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    run_command(main)
