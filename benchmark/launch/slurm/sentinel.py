"""A step on the job's last node that ends a job whose script is lost: python3 -m benchmark.launch.slurm.sentinel

A job with --no-kill outlives its first node, on which its script ran: the job stays "running" on the others without a
process until its time is up. This step then requeues the job; or cancels it, if another job waits to go on. Arguments:
LOG_DIR, and seconds between looks.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from benchmark.launch.slurm.nodes import ask, host_names, job_fields
from benchmark.launch.slurm.queue import waiting_job
from benchmark.run_record.file_names import job_log

LOOKS = 2
"""Looks in a row at which the script's node must be missing from the job."""


def watch(job: str, run_dir: Path, look_s: float) -> None:
    misses = 0
    while True:
        time.sleep(look_s)
        fields = job_fields(job)
        script_node, nodes = fields.get("BatchHost"), host_names(fields.get("NodeList", ""))
        if script_node is None or not nodes:
            continue  # no answer
        misses = 0 if script_node in nodes else misses + 1
        if misses >= LOOKS:
            waiting = waiting_job(job, run_dir)
            goes_on = f"in job {waiting}" if waiting else f"when job {job} has come through the queue again"
            _note(
                run_dir, job, f"node {script_node}, on which the job's script ran, is lost: the run goes on {goes_on}"
            )
            if waiting or not _requeue(job):
                ask("scancel", job)


def _requeue(job: str) -> bool:
    ask("scontrol", "requeue", job)
    return job_fields(job).get("JobState") != "RUNNING"


def _note(run_dir: Path, job: str, text: str) -> None:
    """Append a line to the job's log, which has lost its writer."""
    with suppress(OSError), job_log(run_dir, job).open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")


if __name__ == "__main__":
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # meant for the run
    watch(os.environ["SLURM_JOB_ID"], Path(sys.argv[1]), float(sys.argv[2]))
