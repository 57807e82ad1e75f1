"""Start a run and keep it running.

    python3 -m benchmark.launch --processes 8 --run-dir LOG_DIR -- train gpt3_175b …     on this machine
    python3 -m benchmark.launch job …                                                    a job of run_gpt3.sh
    python3 -m benchmark.launch check [job …]       check the variables of a job, or of the rehearsal
    python3 -m benchmark.launch check-options {job …, rehearse …}      check the options; Python 3.11

Exit status: that of the run; 2 if a person has to mend something.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from benchmark.launch.keep_running import Refused
from benchmark.launch.slurm.job import preview, run_job
from benchmark.launch.slurm.job_options import JobOptions, check_rehearsal, job_options, require_paths, script_help
from benchmark.launch.slurm.job_steps import JobSteps, UnfitInterpreter, answers_of, count_nodes
from benchmark.launch.slurm.timed_lines import timed_lines


class NoGPU(Refused):
    """The machine has no GPU, and the job's system needs one."""


class LaunchParser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all of this program. Raises Refused."""

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{message}; see {self.prog} --help")


def whole_number(word: str) -> int:
    """Return an option's number. Raises ArgumentTypeError for anything but a whole number from 1 on."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word}: expected a whole number from 1 on")
    return int(word)


def run_here_by(arguments: Sequence[str]) -> None:
    """Run the command in several processes of this machine, and exit. Raises Refused."""
    parser = LaunchParser(prog="python3 -m benchmark.launch", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--run-dir", type=Path, required=True, help="folder of the run")
    add("--processes", type=whole_number, required=True, help="number of processes on this machine")
    add("--port", type=whole_number, help="where the processes meet; a free one unless given")
    add("command", nargs="+", help="of python -m benchmark, with its options")
    options = parser.parse_args(arguments)
    if options.command[0] == "train" and (problem := options_problem(options.command)) is not None:
        raise problem
    from benchmark.launch.one_machine import run_here_and_exit  # needs the packages of the benchmark

    run_here_and_exit(options.run_dir, options.command, processes=options.processes, port=options.port)


def options_problem(command: Sequence[str]) -> Refused | None:
    """Return what is wrong with the options, or UnfitInterpreter for missing packages; None if nothing is."""
    script = Path(__file__).parents[1] / "commands" / "interpreter_check.py"
    words = [sys.executable, str(script), "options", *command]
    check = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    return answers_of(sys.executable, check.stdout.decode(errors="replace"), check.returncode)[1]


def job_here(options: JobOptions) -> tuple[list[str], int]:
    """Return the command of the job on this machine, without --run-dir, and the number of devices. Raises Refused."""
    if options.container != "none":
        raise Refused(
            f"{options.container}: without Slurm the job runs on this machine and in no container; say none, or sbatch"
        )
    steps = JobSteps(options)
    facts = steps.names()
    devices = gpus_here() if facts["device"] == "cuda" else int(facts["devices"])
    if options.command != "train":
        words = shlex.join([options.command, options.benchmark, *options.command_options])
        raise Refused(f"without Slurm: torchrun --nproc-per-node {devices} -m benchmark {words}")
    steps.nodes_of_run = 1
    steps.check_options(devices)
    sizes = ["--nodes", "1", "--devices-per-node", str(devices)]
    return [options.command, options.benchmark, *sizes, *options.command_options[2:]], devices


def require_possible_job(options: JobOptions) -> None:
    """Raise Refused for a job that would be refused once the packages are there, which this interpreter may lack."""
    if options.dry_run:
        return  # print_preview does it
    options = replace(options, python=sys.executable, unasked_fp32=False)
    allocated = int(os.environ.get("SLURM_JOB_NUM_NODES") or 0)
    steps = JobSteps(options)
    try:
        if allocated:
            steps.nodes_of_run = count_nodes(allocated, options.nodes, int(steps.names()["nodes"]))
            steps.check_options()
        else:
            job_here(options)
    except UnfitInterpreter:
        return  # a system in a file, which a package reads
    except NoGPU:
        preview(options)  # names wrong options, if there are any
        raise


def print_preview(options: JobOptions) -> int:
    """Print the line that would start the run's processes, here or in a job; return the exit status. Raises Refused."""
    why_not_here = ""
    if "SLURM_JOB_ID" not in os.environ and options.container == "none":
        try:
            # until there is the environment, which a preview does not install
            python = options.python if shutil.which(options.python) else sys.executable
            command, devices = job_here(replace(options, python=python))
            words = [options.python, "-m", "benchmark.launch", "--processes", str(devices)]
            print(shlex.join([*words, "--run-dir", str(options.run_dir), "--", *command]))
            return 0
        except Refused as refused:
            why_not_here = str(refused)
    words = preview(options).run_line([])
    if why_not_here:
        print(f"the line of a Slurm job, because without Slurm: {why_not_here}", file=sys.stderr)
    print(shlex.join(words))
    return 0


def gpus_here() -> int:
    """Return the number of this machine's GPUs. Raises Refused if it has none."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, check=False, timeout=60).stdout.decode()
    except (OSError, subprocess.TimeoutExpired):
        listing = ""
    count = sum(line.startswith("GPU ") for line in listing.splitlines())
    if not count:
        raise NoGPU("this machine has no GPU, which the system needs; in a cluster: sbatch run_gpt3.sh …")
    return count


def options_of_job(arguments: Sequence[str]) -> JobOptions:
    """Return the options from run_gpt3.sh's words and variables. Raises Refused."""
    parser = LaunchParser(prog="python3 -m benchmark.launch job")
    add = parser.add_argument
    add("--repository", type=Path, required=True, help="the checkout of the code")
    add("--code", type=Path, required=True, help="the code that runs until the run has its own copy")
    add("--python", required=True, help="interpreter of the processes")
    add("--folder", type=Path, required=True, help="where relative paths begin")
    add("arguments", nargs="+", help="LOG_DIR BPE_DIR [COM_DIR] CONTAINER")
    options = parser.parse_args(arguments)
    run_dir, container = (options.folder / options.arguments[0]).resolve(), options.arguments[-1]
    if container.startswith(("./", "../")):  # an image's file; the launcher works in the code's folder
        container = str((options.folder / container).resolve())
    base = JobOptions(
        run_dir=run_dir,
        repository=options.repository,
        code=options.code,
        python=options.python,
        container=container,
        script=(str(run_dir), *options.arguments[1:-1], container),
        devices=int(os.environ.get("SLURM_NTASKS_PER_NODE") or 8),
    )
    return job_options(base, options.folder, options.arguments, os.environ)


def check_before_packages(arguments: Sequence[str]) -> None:
    """Check the options of a job or of the rehearsal, before the packages are there. Raises Refused."""
    if arguments[:1] == ["job"]:
        require_possible_job(options_of_job(arguments[1:]))
        return
    problem = options_problem(arguments)
    if problem is not None and not isinstance(problem, UnfitInterpreter):
        raise problem


def check_variables(arguments: Sequence[str]) -> None:
    """Check the variables before anything is installed. Raises Refused."""
    if arguments[:1] != ["job"]:
        check_rehearsal(os.environ)
    else:
        options = options_of_job(arguments[1:])
        if "SLURM_JOB_ID" not in os.environ:  # nodes of a cluster may see other folders
            require_paths(options)


def start_job(options: JobOptions) -> int:
    """Run the job, or print its command; return the exit status. Raises Refused."""
    if options.dry_run:
        return print_preview(options)
    if "SLURM_JOB_ID" not in os.environ:
        command, devices = job_here(options)
        from benchmark.launch.one_machine import run_here_and_exit  # needs the packages of the benchmark

        run_here_and_exit(options.run_dir, command, processes=devices, port=options.port)
    with timed_lines(options.run_dir):
        try:
            return run_job(options)
        except Refused as refused:
            print(f"error: {refused}", flush=True)
            return 2
        finally:
            note_end()


def note_end() -> None:
    """Tell run_gpt3.sh, which starts a launcher again that was killed, that this one ends by itself."""
    if "LAUNCHER_FOLDER" in os.environ:
        with suppress(OSError):
            (Path(os.environ["LAUNCHER_FOLDER"]) / "ended").touch()


def main(arguments: Sequence[str]) -> int:
    try:
        if arguments[:1] == ["variables"]:
            print(script_help(Path(__file__).parents[2] / "run_gpt3.sh"))
        elif arguments[:1] == ["check"]:
            check_variables(arguments[1:])
        elif arguments[:1] == ["check-options"]:
            check_before_packages(arguments[1:])
        elif arguments[:1] == ["job"]:
            return start_job(options_of_job(arguments[1:]))
        else:
            run_here_by(arguments)
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        note_end()
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
