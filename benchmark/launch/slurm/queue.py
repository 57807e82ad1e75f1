"""The job after this one: this job requeued, or, with CHAIN=1, a job that waits in the queue from the beginning.

The waiting of a chained job counts from then on. Slurm is asked each time whether such a job waits; nothing is noted.
"""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from benchmark.launch.keep_running import say
from benchmark.launch.slurm.nodes import SLURM_S, NoAnswer, ask, is_done, job_fields, job_with_answer
from benchmark.run_record.small_files import StoppedWaiting

FIELDS = {
    "Partition": "partition",
    "Account": "account",
    "QOS": "qos",
    "TimeLimit": "time",
    "Reservation": "reservation",
    "Features": "constraint",
    "ExcNodeList": "exclude",
}
"""Options of sbatch, by the fields of a job that hold their values."""
SUBMIT_S = 300.0
"""Most seconds for sbatch: a busy controller takes minutes."""
Successor = Literal["this job", "another job", "nobody"]
"""Job in which a run goes on; nobody: a person has to submit it again."""
OWN_VARIABLES = re.compile("SLURM_(?!CONF$)|SLURMD_|PMI|SBATCH_|NEW_SNAPSHOT$|LAUNCHER_FOLDER$|LAUNCHES$")
"""Variables of this job that are removed, because the next job would take them for its own."""
CHAINED = "CHAINED_JOB"
"""Variable of a job that was queued to go on with a run."""


def chain_name(run_dir: Path) -> str:
    """Return a name by which the jobs of this run, and no others, wait for each other (--dependency=singleton)."""
    return f"gpt3-{re.sub('[^0-9A-Za-z]', '-', run_dir.name)}-{zlib.crc32(os.fsencode(str(run_dir)))}"


def waiting_job(job: str, run_dir: Path) -> str | None:
    """Return the job that waits to go on with this run after ``job``; None if there is none."""
    words = ("squeue", "--noheader", f"--user={getpass.getuser()}", f"--name={chain_name(run_dir)}")
    jobs = ask(*words, "--states=PENDING", "--format=%A").split()
    return next((number for number in jobs if number != job), None)


def queue_next_job(job: str, run_dir: Path, script: Sequence[str], options: Sequence[str]) -> None:
    """Queue a job for ``script`` behind this one, unless one waits. ``options``: more options of sbatch."""
    name = chain_name(run_dir)
    if not is_done("scontrol", "update", f"JobId={job}", f"JobName={name}"):
        say(f"warning: the job cannot be renamed to {name}: no job is queued behind it")
        return
    if (waiting := waiting_job(job, run_dir)) is None:
        submit_options = ["--parsable", "--dependency=singleton", f"--job-name={name}", *_same_options(job, os.environ)]
        variables = {key: value for key, value in os.environ.items() if not OWN_VARIABLES.match(key)}
        variables[CHAINED] = "1"
        words = ["sbatch", *submit_options, *options, *script]
        try:
            output = subprocess.check_output(words, env=variables, stderr=subprocess.STDOUT, timeout=SUBMIT_S)
        except (OSError, subprocess.SubprocessError) as error:
            answer = (getattr(error, "output", None) or str(error).encode()).decode(errors="replace")
            say(f"warning: no job is queued behind this one: {' '.join(answer.split())}")
            return
        waiting = output.decode(errors="replace").split()[-1].partition(";")[0]
    say(f"job {waiting} waits in the queue to go on after this one; touch {run_dir}/exit ends both")


def _same_options(job: str, variables: Mapping[str, str]) -> list[str]:
    """Return the options that this job was submitted with."""
    fields = job_fields(job)
    options = [f"--{option}={fields[name]}" for name, option in FIELDS.items() if name in fields]
    for name, option in (("StdOut", "output"), ("StdErr", "error")):
        if name in fields:  # in the file's name the job's number, where there is one, was %j
            path = Path(fields[name])
            options.append(f"--{option}={path.with_name(path.name.replace(job, '%j'))}")
    if "TresPerNode" in fields:  # such as gres:gpu:8 or gres/gpu:8
        options.append(f"--gres={re.sub('gres[:/]', '', fields['TresPerNode'])}")
    for name, option in (("SLURM_GPUS_PER_TASK", "gpus-per-task"), ("SLURM_CPUS_PER_TASK", "cpus-per-task")):
        if variables.get(name):
            options.append(f"--{option}={variables[name]}")
    return options


def cancel_waiting(job: str, run_dir: Path) -> None:
    """Cancel the waiting job, because the run has ended or a person has to look."""
    waiting = waiting_job(job, run_dir)
    if waiting and is_done("scancel", "--state=PENDING", waiting):
        say(f"job {waiting}, which waited in the queue, is cancelled")


def go_on_later(job: str, run_dir: Path, excluded: Sequence[str], is_ordered: Callable[[], object]) -> Successor:
    """Hand the run to the waiting job, or this job to the queue, and return in which of them the run goes on.

    ``is_ordered``: whether Slurm ends this job already. Slurm's controller is waited for.
    """
    try:
        job_with_answer(job, is_ordered)
        if (waiting := waiting_job(job, run_dir)) is not None:
            if excluded:
                ask("scontrol", "update", f"JobId={waiting}", f"ExcNodeList={','.join(excluded)}")
            say(f"the run goes on in job {waiting}")
            return "another job"
        say(f"the run goes on when job {job} has come through the queue again")
        while not is_done("scontrol", "requeue", job):
            state = job_fields(job).get("JobState")
            if state is None:
                job_with_answer(job, is_ordered)
            elif state in ("RUNNING", "SUSPENDED"):
                say("error: it cannot be requeued here; submit the same command again to go on")
                return "nobody"
            else:
                break  # it stands in the queue already
    except StoppedWaiting:
        pass
    except NoAnswer:
        say(f"error: Slurm gave no answer for {SLURM_S / 60:g} minutes; submit the same command again to go on")
        return "nobody"
    return "this job"
