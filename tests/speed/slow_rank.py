"""How surely a run names a rank that computes 30 % slower, and no other, by the real clock of a busy machine.

python -m tests.speed.slow_rank [--runs 10] [--work-dir runs/slow_rank]

Each run is 40 steps of the tiny benchmark on two processes; in every second one none is slowed.
"""

import argparse
import dataclasses
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.config.run_config import RunConfig
from benchmark.launch.endings import Ending
from benchmark.training.engine.distributed import read_environment
from benchmark.training.train import train
from model.passes.block_pass import BlockPass
from tests.benchmark.runs import events, system_of
from tests.benchmark.tiny import TINY, in_processes, write_inputs

SLOWED_BY = 0.3
FIRST = 20
"""Blocks that the others are compared with."""
BENCHMARK = dataclasses.replace(TINY, train_samples=4040 * 12, eval_interval_samples=12 * 20)


def train_slowed(config: RunConfig, slow_rank: int) -> Ending:
    """Train; on that rank a block takes at least 30 % longer than the first ones took."""
    if read_environment().rank == slow_rank:
        setattr(BlockPass, "_whole_forward", slowed(BlockPass._whole_forward))  # noqa: B010
    return train(config)


def slowed(forward: Callable[..., Any]) -> Callable[..., Any]:
    took = list[float]()

    def longer(*arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        result = yield from forward(*arguments, **named)
        if len(took) < FIRST:
            took.append(time.perf_counter() - started)
        else:
            time.sleep(SLOWED_BY * sorted(took)[FIRST // 2])
        return result

    return longer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--work-dir", type=Path, default=Path("runs/slow_rank"))
    options = parser.parse_args()
    folder = options.work_dir.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    inputs, right = write_inputs(folder), 0
    for number in range(options.runs):
        slow_rank = 1 if number % 2 == 0 else -1
        config = inputs.config(
            folder / f"run_{number}", benchmark=BENCHMARK, system=system_of(2, micro_batch_size=1), audit_interval=0
        )
        in_processes(2, train_slowed, config, slow_rank)
        named = [one["rank"] for event in events(config.run_dir, "slow_ranks") for one in event["slow"]]
        right += named == ([] if slow_rank < 0 else [slow_rank])
        print(f"run {number}: slow {slow_rank}, named {named}", flush=True)
    print(f"{right} of {options.runs} runs right")


if __name__ == "__main__":
    main()
