"""What must hold between steps, whatever they are: more of a good thing is never slower. Tried on steps made at random.

python -m tests.backtest.relations --works 2000 --seed 1

Prints what does not hold; exit status 1 if there is anything. A thousand take about two minutes.
"""

import argparse
import dataclasses
import random
import sys
from collections.abc import Iterator
from typing import Any, get_args

from benchmark.planning.step_model.memory_formula import memory_need
from benchmark.planning.step_model.simulated_step import simulate_evaluation, simulate_step
from benchmark.planning.step_model.stacks import STACKS, OverlapFeature
from benchmark.planning.step_model.workload import Layout, Workload
from tests.benchmark.planning.step_model.works import GPT3, decoder, rates_of

MODELS = (
    GPT3,
    decoder(126, 16384, 128, 8192, 128256, kv_heads=8, ffn=53248, gated=True),
    decoder(80, 8192, 64, 4096, 32000, kv_heads=8, ffn=28672, gated=True),
    decoder(48, 7168, 56, 2048, 50368),
    decoder(24, 2048, 16, 512, 50000),
)
FASTER_DEVICES = (("A100-80GB", "H100 SXM"), ("H100 SXM", "H200"), ("H200", "B200"))
BETTER = ("nvlink_gb_s", "memory_tb_s", "matmul_bf16", "attention_forward", "attention_backward")
RECOMPUTED_LESS = (("full", "selective"), ("selective", "none"))
MOST_DEVICES = 16384
ROUNDING = 1e-9


def random_work(chosen: random.Random) -> Workload:
    """A step of any stack, in BF16, on up to 16,384 devices."""
    while True:
        model, pipeline = chosen.choice(MODELS), chosen.choice((1, 1, 2, 4, 8, 16))
        tensor, data = chosen.choice((1, 2, 4, 8)), chosen.choice((1, 2, 4, 8, 16, 64, 128))
        chunks = chosen.choice((1, 1, 2, 3, 4)) if pipeline > 1 else 1
        micro_batch = chosen.choice((1, 2, 4))
        micro_batches = pipeline * chosen.choice((1, 2, 4, 7)) + chosen.choice((0, 0, 1, 3))
        devices = tensor * pipeline * data
        if devices > MOST_DEVICES or pipeline * chunks > model.num_layers:
            continue
        layout = Layout(
            devices,
            8,
            micro_batch * data * micro_batches,
            micro_batch,
            tensor,
            pipeline,
            chunks,
            sharding=chosen.choice(("fsdp", "zero1")) if pipeline == 1 else "zero1",
            recompute=chosen.choice(("none", "selective", "full")),
            sequence_parallel=tensor > 1 and chosen.random() < 0.8,
        )
        accelerator = chosen.choice(("A100-80GB", "H100 SXM", "H200", "B200"))
        return Workload(model, layout, "bf16", accelerator, chosen.choice(list(STACKS)))


def broken_relations(work: Workload) -> Iterator[str]:
    """What does not hold of this step, in words."""
    parts = simulate_step(work, rates_of(work))
    if min(dataclasses.astuple(parts)) < -ROUNDING * parts.total or not 0 < parts.total < float("inf"):
        yield f"parts: {parts}"
    for name, slower_s, faster_s in _pairs(work, parts.total):
        if faster_s > slower_s * (1 + ROUNDING):
            yield f"{name}: {faster_s} instead of at most {slower_s}"


def _pairs(work: Workload, step_s: float) -> Iterator[tuple[str, float, float]]:
    """Name, what must not be less, and what must not be more."""
    for name in BETTER:
        rates = rates_of(work)
        twice = getattr(rates.device, name).scaled(2.0, "twice")
        faster = rates.changed({f"accelerators.{work.accelerator}.{name}": twice})
        yield f"twice the {name}", step_s, simulate_step(work, faster).total
    for slow, fast in FASTER_DEVICES:
        yield f"{fast} for {slow}", _step_s(work, accelerator=slow), _step_s(work, accelerator=fast)
    yield "a faster network", _step_s(work, network_gbit_s=100.0), _step_s(work, network_gbit_s=400.0)
    for feature in get_args(OverlapFeature):
        yield f"with {feature}", _step_s(work, without=(feature,)), step_s
    if "fp8" in STACKS[work.stack].precisions and not work.code.ours:  # ours can lose by its casts
        hopper = dataclasses.replace(work, accelerator="H100 SXM")
        eight = dataclasses.replace(hopper, precision="fp8")
        yield "FP8", _step_s(hopper), _step_s(eight)
    yield from _of_layout(work, step_s)
    shorter, longer = (simulate_evaluation(work, rates_of(work), sequences) for sequences in (1000, 2000))
    yield "a shorter evaluation", longer, shorter


def _of_layout(work: Workload, step_s: float) -> Iterator[tuple[str, float, float]]:
    layout = work.layout
    for more, less in RECOMPUTED_LESS:
        one, other = (_laid_out(work, recompute=each) for each in (more, less))
        yield f"recompute {less} for {more}", _step_s(one), _step_s(other)
        yield f"memory of recompute {more} for {less}", memory_need(other).total, memory_need(one).total
    alone = _laid_out(work, devices_per_node=1)
    yield "all messages by the network", _step_s(alone), step_s
    twice = simulate_step(_laid_out(work, global_batch_size=2 * layout.global_batch_size), rates_of(work))
    yield "half the batch", twice.total, step_s
    yield "twice the batch, by sample", step_s, twice.total / 2
    if layout.pipeline_parallel > 1:
        parts = simulate_step(work, rates_of(work))
        yield "the bubble's share of twice the batch", parts.bubble / step_s, twice.bubble / twice.total


def _laid_out(work: Workload, **changes: Any) -> Workload:
    return dataclasses.replace(work, layout=dataclasses.replace(work.layout, **changes))


def _step_s(work: Workload, **changes: Any) -> float:
    changed = dataclasses.replace(work, **changes)
    return simulate_step(changed, rates_of(changed)).total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    source, broken = random.Random(chosen.seed), 0
    for _ in range(chosen.works):
        work = random_work(source)
        for words in broken_relations(work):
            broken += 1
            print(f"{words}\n    {work}", flush=True)
    print(f"{chosen.works} steps, {broken} broken relations")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
