"""What the guards of a run cost: steps with all of them on against steps with all of them off.

python -m tests.speed.guards [--pairs 10] [--work-dir runs/guards]

Whole runs of the drills' benchmark, two processes, take turns: on, off, off, on, ... Nothing is saved or evaluated in
them. The first steps of each are left out. The ratio is that of the medians over all steps, with the spread over pairs.
"""

import argparse
import dataclasses
import statistics
from pathlib import Path
from typing import Any

from benchmark.drills.drilled_run import Disturbed, run_to_its_end
from benchmark.drills.practice import LAYOUTS, PRACTICE, PracticeInputs, practice_config, prepared_inputs
from benchmark.results.recorded_events import read_events

BATCH, STEPS, LEFT_OUT = 32, 40, 5
BENCHMARK = dataclasses.replace(
    PRACTICE,
    global_batch_size=BATCH,
    start_global_batch_size=BATCH,
    train_samples=(PRACTICE.start_iterations + STEPS) * BATCH,
    eval_interval_samples=STEPS * BATCH,
)
GUARDS: dict[str, Any] = {"watchdog": False}
"""Options that switch them off."""


def step_seconds(inputs: PracticeInputs, folder: Path, *, guarded: bool) -> list[float]:
    options = {} if guarded else GUARDS
    config = practice_config(
        inputs, folder / "run", LAYOUTS["2 processes"], BENCHMARK, save_interval=0, log_interval=1000, **options
    )
    run_to_its_end(Disturbed(config), folder)
    steps = [
        event.number("step_s") or 0.0 for event in read_events(folder / "run" / "events.jsonl") if event.key == "step"
    ]
    assert len(steps) == STEPS, f"{folder}: the run did not come to its end"
    return steps[LEFT_OUT:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--work-dir", type=Path, default=Path("runs/guards"))
    options = parser.parse_args()
    inputs = prepared_inputs(options.work_dir)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    ratios = []
    for pair in range(options.pairs):
        found = {}
        for guarded in (True, False) if pair % 2 else (False, True):
            found[guarded] = step_seconds(inputs, options.work_dir.resolve() / "run", guarded=guarded)
            seconds[guarded] += found[guarded]
        ratios.append(statistics.median(found[True]) / statistics.median(found[False]))
        print(f"pair {pair + 1}: {ratios[-1]:.4f}", flush=True)
    on, off = (statistics.median(seconds[guarded]) for guarded in (True, False))
    print(f"median step with guards {on * 1000:.2f} ms, without {off * 1000:.2f} ms: ratio {on / off:.4f}")
    print(f"ratios of the pairs: median {statistics.median(ratios):.4f}, {min(ratios):.4f} to {max(ratios):.4f}")


if __name__ == "__main__":
    main()
