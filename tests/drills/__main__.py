"""Faults injected into short runs, and a table of what came of each: healed without a person, or ended with the right
words; steps lost; whether weights, moments, losses and evaluations are those of an undisturbed run, to the bit.

    python -m tests.drills                          all drills of the run, about 15 minutes on two cores
    python -m tests.drills kill-in-shards disk-full some
    python -m tests.drills --benchmark rehearsal_llama kill-rank-0
    python -m tests.drills slurm                    those of the job, under a real Slurm on this machine
    python -m tests.drills --fuzz 30 --seed 1       30 runs, each with two or three faults at random

Exit status: 0 every drill came out right, 1 one did not.
"""

import argparse
import dataclasses
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from foundation.outputs.lock import only_one_in
from tests.benchmark.tiny import Inputs
from tests.drills.drill_table import DRILLS, Drill
from tests.drills.drilled_run import Disturbed, Ended, run_to_its_end
from tests.drills.faults import words_for
from tests.drills.judging import DrillResult, judge
from tests.drills.mixed_drills import mixed
from tests.drills.practice import (
    LAYOUTS,
    PRACTICES,
    SAVE_INTERVAL,
    of_steps,
    practice_config,
    prepared_inputs,
)
from tests.drills.slurm_drills import run_slurm_drills
from tests.drills.slurm_faults import SLURM_FAULTS

HEAD = f"{'drill':28} {'outcome':10} {'attempts':>8} {'lost':>5} {'alarm':>6} {'next loss':>9} {'took':>6}  right"


class Drills:
    """Runs drills of a benchmark in a folder; an undisturbed run of each layout and length is made once."""

    def __init__(self, work_dir: Path, benchmark: Benchmark, *, seed: int) -> None:
        self._work, self._seed, self._benchmark = work_dir.resolve(), seed, benchmark
        self._undisturbed: dict[tuple[str, int], Ended] = {}
        self.inputs: Inputs = prepared_inputs(self._work)

    def run(self, drill: Drill) -> DrillResult:
        random, folder, system = Random(f"{self._seed} {drill.name}"), self._work / drill.name, _system(drill)
        undisturbed = self.undisturbed(drill.layout, drill.steps)
        faults = tuple(fault.drawn(random, system.num_devices) for fault in drill.faults)
        inputs = self._inputs_for(drill, folder)
        benchmark = of_steps(self._benchmark, drill.steps)
        config = practice_config(inputs, folder / "run", system, benchmark, **_options(drill, folder))
        disturbed = Disturbed(config, folder, 0, faults, drill.damage, drill.first_options)
        ended = run_to_its_end(disturbed, continued=drill.continued)
        return judge(drill, ended, undisturbed, save_interval=SAVE_INTERVAL, faults=words_for([*faults, *drill.damage]))

    def undisturbed(self, layout: str, steps: int) -> Ended:
        if (layout, steps) not in self._undisturbed:
            folder = self._work / "undisturbed" / f"{layout.replace(' ', '_')}_{steps}"
            config = practice_config(self.inputs, folder / "run", LAYOUTS[layout], of_steps(self._benchmark, steps))
            ended = run_to_its_end(Disturbed(config, folder))
            assert (ended.finished, len(ended.decisions)) == ("success", 1), f"{folder}: see its logs"
            self._undisturbed[layout, steps] = ended
        return self._undisturbed[layout, steps]

    def _inputs_for(self, drill: Drill, folder: Path) -> Inputs:
        """Inputs of its own where the drill damages them."""
        if not any(damage.kind == "flip data" for damage in drill.damage):
            return self.inputs
        own = folder.with_name(f"{folder.name}.inputs")
        shutil.rmtree(own, ignore_errors=True)
        shutil.copytree(self.inputs.folder, own, ignore=shutil.ignore_patterns("checkpoint", "paxml"))
        (own / "checkpoint").symlink_to(self.inputs.checkpoint)
        return Inputs(own)


def run_drills(chosen: Sequence[Drill], work_dir: Path, benchmark: Benchmark, *, seed: int) -> bool:
    """Run the drills and print what came of them; whether all came out right."""
    drills, right, started = Drills(work_dir, benchmark, seed=seed), 0, time.perf_counter()
    print(HEAD, flush=True)
    for drill in chosen:
        result = drills.run(drill)
        right += not result.problems
        print(row(result), flush=True)
    seconds = time.perf_counter() - started
    print(f"{right} of {len(chosen)} came out right, in {seconds:.0f} s (seed {seed}); runs in {work_dir}")
    return right == len(chosen)


def row(result: DrillResult) -> str:
    """A line of the table, and one for each problem."""
    line = (
        f"{result.name:28} {result.outcome:10} {result.attempts:>8} {result.lost_steps:>5} {_s(result.detected_s):>6} "
        f"{_s(result.next_loss_s):>9} {_s(result.seconds):>6}  {'NO' if result.problems else 'yes'}"
    )
    more = [*result.problems, f"injected: {result.faults}", f"said: {result.words}"] if result.problems else []
    return "\n".join([line, *(f"    {text}" for text in more)])


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"


def _system(drill: Drill) -> System:
    system, own = LAYOUTS[drill.layout], SYSTEMS["cpu_p2"]
    limits = {"start_limit_s": own.start_limit_s, "hang_floor_s": own.hang_floor_s} if drill.own_limits else {}
    return dataclasses.replace(system, **limits)  # type: ignore[arg-type]


def _options(drill: Drill, folder: Path) -> dict[str, Any]:
    """Return the drill's options of a run; texts are paths, relative to the drill's folder."""
    return {name: folder / value if isinstance(value, str) else value for name, value in drill.options.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"slurm, {', '.join([*DRILLS, *SLURM_FAULTS])}")
    parser.add_argument("--benchmark", choices=PRACTICES, default="rehearsal", help="whose run is disturbed")
    parser.add_argument("--fuzz", type=int, default=0, help="so many runs with faults at random instead")
    parser.add_argument("--seed", type=int, default=0, help="of the faults' steps, ranks and delays")
    parser.add_argument("--cluster", type=Path, help="TOML file of a cluster for the job's drills: present_cluster.py")
    parser.add_argument("--at-once", type=int, default=2, help="drills of the job that run at once on this machine")
    parser.add_argument("--work-dir", type=Path, default=Path("runs/drills"), help="where inputs and runs go")
    options = parser.parse_args()
    if unknown := set(options.names) - {"slurm", *DRILLS, *SLURM_FAULTS}:
        parser.error(f"unknown drill {min(unknown)}; see --help")
    job = [*SLURM_FAULTS] if "slurm" in options.names else [name for name in options.names if name in SLURM_FAULTS]
    here = [DRILLS[name] for name in options.names if name in DRILLS]
    if options.fuzz:
        here = [mixed(number, options.seed) for number in range(options.fuzz)]
    elif not options.names:
        here = [*DRILLS.values()]
    options.work_dir.mkdir(parents=True, exist_ok=True)
    with only_one_in(options.work_dir, "choose another --work-dir"):
        right = run_drills(here, options.work_dir, PRACTICES[options.benchmark], seed=options.seed) if here else True
        if job:
            work = options.work_dir / f"slurm_{options.benchmark}"
            right = run_slurm_drills(job, work, options.benchmark, options.cluster, at_once=options.at_once) and right
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
