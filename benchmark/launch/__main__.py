"""Start a run and keep it running: python3 -m benchmark.launch OPTIONS -- train BENCHMARK …

With --processes the run takes so many processes on this machine, without it the Slurm job that this process is part of,
which run_gpt3.sh submits (docs/slurm.md). Exit status: that of the run; 2 if a person has to mend something.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmark.launch.keep_running import Refused
from benchmark.launch.slurm.job import run_job
from benchmark.launch.slurm.timed_lines import timed_lines


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m benchmark.launch", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--run-dir", type=Path, required=True, help="folder of the run, which all its machines share")
    add("--processes", type=int, help="start so many on this machine")
    add("--port", type=int, help="where the processes meet; a free one unless given")
    job = parser.add_argument_group("in a job of Slurm")
    add = job.add_argument
    add("--repository", type=Path, default=Path.cwd(), help="the checkout of the code, of which the run keeps a copy")
    add("--code", type=Path, default=Path.cwd(), help="the code that runs until there is that copy")
    add("--python", default="python3", help="interpreter of the processes")
    add("--container", default="none", help="image for srun --container-image")
    add("--mount", type=Path, action="append", default=[], help="a folder that the container sees")
    add("--devices", type=int, default=8, help="processes on each node")
    add("--nodes", type=int, help="nodes that the run takes; the job's others are spare")
    add("--margin-minutes", type=int, default=15, help="save and stop so long before the job's time is up")
    add("--chain", action="store_true", help="have the next job wait in the queue")
    add("--chain-options", default="", help="more options of sbatch for that one")
    add("--script", action="append", default=[], help="an argument of run_gpt3.sh, for that one")
    add("--new-snapshot", action="store_true", help="copy the code anew")
    add("--snapshot-file", action="append", default=[], help="an untracked file that belongs to the code")
    add("--cpu-bind", default="none", help="as srun has it")
    add("--address", help="where the processes meet; the first node unless given")
    add("--dry-run", action="store_true", help="print the srun line")
    add("command", nargs="+", help="of python -m benchmark, with its options")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.processes is not None:
        from benchmark.launch.one_machine import run_here_and_exit  # needs the packages of the benchmark

        run_here_and_exit(options.run_dir, options.command, processes=options.processes, port=options.port)
    if options.dry_run:
        return run_job(options)
    with timed_lines(options.run_dir):
        try:
            return run_job(options)
        except Refused as refused:
            print(f"error: {refused}", flush=True)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
