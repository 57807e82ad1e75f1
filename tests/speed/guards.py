"""What the guards of a run cost: steps with all of them on against steps with all of them off, in one run.

python -m tests.speed.guards [--steps 1200] [--work-dir runs/guards]

One run of the drills' benchmark, two processes, nothing saved or evaluated. Every few steps all guards are switched:
on, off, off, on, ... Off means: no heartbeats, the watchdogs suspended, the comparison of ranks and the judging of loss
and norm left out. What is timed is all of a step, from one to the next; the first after a switch does not count.
Ratios are those of neighbouring blocks, median and quartiles. Where other programs share the cores, the ratio of the
process's CPU time tells more than that of the wall time; the watchdogs' own comes on top.
"""

import argparse
import dataclasses
import json
import os
import signal
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.config.run_config import RunConfig
from benchmark.run_record.file_names import attempt_path
from benchmark.run_record.phases import Phase, PhaseLog
from benchmark.training.engine.distributed import end_process
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.liveness.heartbeat import HangLimits, Heartbeat
from benchmark.training.liveness.watchdog import watched
from benchmark.training.machine.forked_ranks import run_ranks
from benchmark.training.observers.speed_watch import SpeedWatch
from benchmark.training.observers.spikes import SpikeGuard
from benchmark.training.train import train
from tests.drills.acts import children
from tests.drills.practice import BATCH, LAYOUTS, PRACTICE, practice_config, prepared_inputs

BLOCK = 6
"""Steps between switches."""
WARM_UP = 4 * BLOCK
TIMES_BATCH = 4
"""Of the drills' batch: as many micro-batches per step and process as 8."""
Timed = tuple[int, bool, float, float]
"""Of a step: those done before it, whether the guards were on, seconds, seconds of CPU time."""


class Switch:
    """Observes the phases: times steps, switches the guards, hands phases to the heartbeat while they are on."""

    def __init__(self, heartbeat: Heartbeat, watchdog: int) -> None:
        self._heartbeat, self._watchdog = heartbeat, watchdog
        self.on = True
        self.timed: list[Timed] = []
        self._began: tuple[float, float] | None = None

    def enter(self, phase: Phase, steps: int) -> None:
        if phase == "data":
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            if self._began is not None:
                self.timed.append((steps - 1, self.on, wall_s - self._began[0], cpu_s - self._began[1]))
            self._set(on=(steps // BLOCK) % 4 in (0, 3))
            self._began = time.perf_counter(), time.process_time()
        if self.on:
            self._heartbeat.enter(phase, steps)

    def _set(self, *, on: bool) -> None:
        if on != self.on:
            os.kill(self._watchdog, signal.SIGCONT if on else signal.SIGSTOP)
        self.on = on


def leave_out(owner: type, name: str, switch: Switch) -> None:
    """Have a method do nothing while the guards are off."""
    method: Any = getattr(owner, name)

    def called(*arguments: Any, **named: Any) -> Any:
        return method(*arguments, **named) if switch.on else None

    setattr(owner, name, called)


def run_rank(config: RunConfig, folder: Path) -> None:
    environment = read_environment()
    attempt = attempt_path(config.run_dir, environment.attempt)
    attempt.mkdir(parents=True, exist_ok=True)
    heartbeat = Heartbeat(HangLimits(600.0, 600.0))
    with watched(heartbeat, attempt, environment.rank, environment.host):
        (watchdog,) = children()
        switch = Switch(heartbeat, watchdog)
        for observer, event in ((SpeedWatch, "before_step"), (SpeedWatch, "step_done"), (SpikeGuard, "between_steps")):
            leave_out(observer, event, switch)
        train(config, environment, PhaseLog(switch))
        ticks = Path(f"/proc/{watchdog}/stat").read_text().rpartition(")")[2].split()[11:13]
    used_s = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    print(f"the watchdog of rank {environment.rank} took {used_s:.2f} s of CPU time", flush=True)
    (folder / f"steps_{environment.rank}.json").write_text(json.dumps(switch.timed))
    end_process(0)


def paired(timed: Sequence[Timed], clock: int) -> list[tuple[list[float], list[float]]]:
    """Seconds by a clock (2 or 3 of Timed) of the steps of neighbouring blocks with and without guards, the first of
    each block left out."""
    blocks: dict[int, tuple[bool, list[float]]] = {}
    for step in timed:
        if step[0] >= WARM_UP and step[0] % BLOCK:
            blocks.setdefault(step[0] // BLOCK, (step[1], []))[1].append(step[clock])
    pairs = []
    for number in range(WARM_UP // BLOCK, max(blocks), 2):
        first, second = blocks[number], blocks[number + 1]
        pairs.append((first[1], second[1]) if first[0] else (second[1], first[1]))
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--work-dir", type=Path, default=Path("runs/guards"))
    options = parser.parse_args()
    inputs, folder = prepared_inputs(options.work_dir), options.work_dir.resolve() / time.strftime("run_%H%M%S")
    folder.mkdir(parents=True)
    size = BATCH * TIMES_BATCH
    samples = PRACTICE.start_iterations * size
    benchmark = dataclasses.replace(
        PRACTICE,
        global_batch_size=size,
        start_global_batch_size=size,
        train_samples=samples + options.steps * size,
        eval_interval_samples=options.steps * size,
    )
    config = practice_config(
        inputs, folder / "run", LAYOUTS["2 processes"], benchmark, save_interval=0, log_interval=1000
    )
    config.run_dir.mkdir()
    environment = {"ATTEMPT": "0001"}
    status = run_ranks(run_rank, [config, folder], processes=2, environment=environment, log=folder / "log.txt")
    assert status == 0, (folder / "log.txt").read_text()[-2000:]
    print((folder / "log.txt").read_text()[-200:].strip())
    timed = json.loads((folder / "steps_0.json").read_text())
    for title, clock in (("wall time", 2), ("CPU time of rank 0", 3)):
        pairs = paired(timed, clock)
        on, off = (statistics.median(s for pair in pairs for s in pair[side]) * 1000 for side in (0, 1))
        ratios = [statistics.median(one) / statistics.median(other) for one, other in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{title}: median step with guards {on:.2f} ms, without {off:.2f} ms, ratio {middle:.4f} ({low:.4f} to "
            f"{high:.4f}; {len(pairs)} pairs of blocks)"
        )


if __name__ == "__main__":
    main()
