"""Jobs with two faults each at random: the disk below LOG_DIR, a process, Slurm's answers. The run must come out equal.

    python -m tests.drills.fuzz --seed 7 --runs 1          the run of seed 7
    python -m tests.drills.fuzz --seed 0 --runs 100        those of seeds 0 to 99, about 40 minutes on two cores
    python -m tests.drills.fuzz --runs 10 --longest-s 5    faults of at most 5 s

Exit status: 0 every run came out right, 1 one did not.
"""

import argparse
import dataclasses
import itertools
import os
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import tests.unsynced  # noqa: F401
from benchmark.run_record.status.status_reading import read_status
from benchmark.training.machine.forked_ranks import fork_server
from foundation.outputs.lock import only_one_in
from tests.drills.drilled_run import Ended, read_ended
from tests.drills.fuzz.disk_faults import build_library
from tests.drills.fuzz.drawn_faults import LONGEST_S, JobFault, drawn
from tests.drills.fuzz.fuzzed_job import EndedJob, FuzzedJob
from tests.drills.fuzz.job_oracle import problems_of
from tests.drills.fuzz.short_limits import limits_part
from tests.drills.practice import PRACTICE, practice_config, prepared_inputs, two_processes

AT_ONCE = 4
FIRST_NUMBER = 3000
"""Of the jobs."""
START_LIMIT_S = 30.0
"""Seconds, beside the longest fault, that a process may be silent in anything for the first time."""
STUCK_S, SLOW_S = 1000.0, 300.0
"""Seconds after which a job is stuck, beside twice the longest fault: it waits 900 s for a silent srun, or the part of
them to which the launcher's limits are shortened; and a busy machine is slow."""
BENCHMARK = dataclasses.replace(PRACTICE, target_log_perplexity=4.7)
"""It reaches the target at its last evaluation."""


@dataclass(frozen=True)
class FuzzOutcome:
    """The row of a run."""

    seed: int
    faults: Sequence[JobFault]
    struck: Sequence[JobFault]
    problems: Sequence[str]
    seconds: float
    restarts: int
    states: Sequence[str]
    """States that the status named, in their order."""
    endings: Sequence[str]
    """How the attempts ended, as the status says afterwards."""

    def text(self) -> str:
        """One line; of a run that is not right, several."""
        state = "right" if not self.problems else "WRONG"
        faults = "; ".join(
            fault.words() + ("" if fault in self.struck else " (did not strike)") for fault in self.faults
        )
        counts = f"{self.restarts} requeues, {self.seconds:.0f} s"
        line = f"seed {self.seed}: {state}: {counts}: {faults}"
        status = f"    status: {', '.join(self.states)}; attempts: {', '.join(self.endings)}"
        return "\n".join([line, status, *(f"    {text}" for text in self.problems)])


class JobFuzz:
    """Runs jobs in a folder; the undisturbed one is made once."""

    def __init__(self, work_dir: Path, longest_s: float, pool: Executor) -> None:
        self._work_dir, self._longest_s = work_dir.resolve(), longest_s
        self._inputs = prepared_inputs(self._work_dir)
        self._library = build_library(self._work_dir)
        os.environ["LD_PRELOAD"] = str(self._library)
        context = fork_server()  # the library is loaded into it, and so into the ranks
        process = context.Process(target=int)
        process.start()
        process.join()
        del os.environ["LD_PRELOAD"]
        self._undisturbed = pool.submit(self._undisturbed_run)

    def _undisturbed_run(self) -> Ended:
        """Run a job without faults. Raises SystemExit if it does not come out right."""
        job, ended = self._run("undisturbed", (), FIRST_NUMBER)
        problems = problems_of(job, ended, ended, self._work_dir / "undisturbed" / "log", FIRST_NUMBER)
        if problems:
            raise SystemExit("\n".join([f"{self._work_dir}/undisturbed is not right:", *problems]))
        print(f"undisturbed: {job.seconds:.1f} s; calls below LOG_DIR: {job.calls}", flush=True)
        return ended

    def run(self, seed: int) -> FuzzOutcome:
        faults, number, name = drawn(seed, self._longest_s), FIRST_NUMBER + 1 + seed % 5000, f"seed_{seed}"
        job, left = self._run(name, faults, number)
        problems = problems_of(job, left, self._undisturbed.result(), self._work_dir / name / "log", number)
        states = [state for state, _ in itertools.groupby(sample.status for sample in job.samples)]
        log_dir = self._work_dir / name / "log"
        endings = [row.kind for row in read_status(log_dir).attempts] if left.attempts else []
        return FuzzOutcome(seed, faults, job.struck, problems, job.seconds, job.restarts, states, endings)

    def _run(self, name: str, faults: Sequence[JobFault], number: int) -> tuple[EndedJob, Ended]:
        folder = self._work_dir / name
        system = dataclasses.replace(two_processes(), start_limit_s=START_LIMIT_S + self._longest_s, hang_floor_s=8.0)
        config = practice_config(self._inputs, folder / "log", system, BENCHMARK)
        limit_s = limits_part(self._longest_s) * STUCK_S + SLOW_S + 2 * self._longest_s
        job = FuzzedJob(folder, config, faults, number, self._library, self._longest_s, limit_s).run()
        return job, read_ended(config, folder, (), job.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the first run; the next run has the next seed")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--longest-s", type=float, default=LONGEST_S, help="most seconds of a fault")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="runs beside each other, which mostly wait")
    parser.add_argument("--work-dir", type=Path, default=Path("runs/fuzz"), help="where inputs and runs go")
    options = parser.parse_args()
    options.work_dir.mkdir(parents=True, exist_ok=True)
    started, wrong = time.perf_counter(), list[int]()
    with only_one_in(options.work_dir, "choose another --work-dir"), ThreadPoolExecutor(options.at_once) as pool:
        fuzz = JobFuzz(options.work_dir, options.longest_s, pool)
        runs = [pool.submit(fuzz.run, options.seed + number) for number in range(options.runs)]
        for run in as_completed(runs):
            outcome = run.result()
            print(outcome.text(), flush=True)
            if outcome.problems:
                wrong.append(outcome.seed)
            else:
                shutil.rmtree(options.work_dir / f"seed_{outcome.seed}", ignore_errors=True)
    seconds = time.perf_counter() - started
    right = options.runs - len(wrong)
    print(f"{right} of {options.runs} runs came out right, in {seconds:.0f} s; runs in {options.work_dir}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
