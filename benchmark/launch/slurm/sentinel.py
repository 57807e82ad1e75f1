"""A step on each node of a job that ends the job if its launcher is lost: python3 -m benchmark.launch.slurm.sentinel

A job may lose its launcher with its node or its script. A sentinel takes the run's lease once nobody renews it; then it
requeues the job, or cancels it if another one waits. Arguments: LOG_DIR, the beginning of the launchers' tokens.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmark.launch.keep_running import DISK_S
from benchmark.launch.slurm.nodes import TIME_LIMIT, ask, is_requeued, job_fields, job_with_answer
from benchmark.launch.slurm.queue import waiting_job
from benchmark.run_record.attempt_folder import AttemptEnding, all_attempts, read_ending, write_ending
from benchmark.run_record.file_names import job_log
from benchmark.run_record.lease import JOB_S, SENTINEL, HeldLease
from benchmark.run_record.small_files import StoppedWaiting

LOOK_S = JOB_S / 12
"""Seconds between looks: 256 nodes read the lease 26 times a second."""
AWAY_S = 3 * DISK_S
"""Seconds without an answer of the disk after which the job is requeued: a launcher that lives does so earlier."""
STAGGER_S = 0.1
"""Seconds by which a node's sentinel acts after that of the node before it."""
TAIL_BYTES = 1000
UNSEEN = 137
"""Exit status that is noted for processes whose end nobody saw."""
KILLED = "0:9"
"""Exit code of a job whose script was killed by SIGKILL, in Slurm's words."""


class Sentinel:
    def __init__(self, job: str, run_dir: Path, script: str, host: str) -> None:
        self._job, self._run_dir, self._script = job, run_dir, script
        self._lease = HeldLease(run_dir, f"{SENTINEL}job {job}", JOB_S, f"{script}-sentinel-{host}")
        self._restarts = os.environ.get("SLURM_RESTART_COUNT", "0")

    def watch(self) -> None:
        """Watch until the job has been sent to the queue, or ends for another reason."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        answered_s, reason = time.monotonic(), f"the launcher of job {self._job} is lost"
        while time.monotonic() - answered_s < AWAY_S:
            if signal.sigtimedwait({signal.SIGTERM}, LOOK_S) is not None:
                time.sleep(min(STAGGER_S * int(os.environ.get("SLURM_PROCID", "0")), LOOK_S))
                if not (reason := self._reason_to_go_on()):
                    return
                break
            if self._lease.watch.silent_s >= JOB_S - 2 * LOOK_S:  # it is about to be taken
                fields = job_fields(self._job)
                if is_requeued(fields, self._restarts):
                    return
                if not fields:  # Slurm gives no answer: the lease is watched on
                    with suppress(OSError):
                        self._lease.watch.look()
                    continue
            with suppress(OSError):
                if self._lease.try_to_take(lambda _: False):
                    break
                answered_s = time.monotonic()
        self._send_on(reason)

    def _reason_to_go_on(self) -> str:
        """Return why Slurm ends the job, if a launcher holds the run and nobody ordered the end; else nothing."""
        with suppress(OSError):  # then the latest look counts that the disk answered
            self._lease.watch.look()
        lease = self._lease.watch.lease
        is_held = lease is not None and lease.token.startswith(f"{self._script}-")
        try:  # again and again without an answer, until Slurm kills this process, too
            fields = job_with_answer(self._job, lambda: not is_held)
        except (OSError, StoppedWaiting):
            return ""
        if not is_held or is_requeued(fields, self._restarts):
            return ""
        if fields.get("Reason") == TIME_LIMIT:  # the run did not leave in time, or Slurm did not say the time
            return f"the time of job {self._job} is over"
        return f"the script of job {self._job} was killed" if fields.get("ExitCode") == KILLED else ""

    def _send_on(self, reason: str) -> None:
        waiting = waiting_job(self._job, self._run_dir)
        goes_on = f"in job {waiting}" if waiting else f"when job {self._job} has come through the queue again"
        attempts = list[Path]()
        with suppress(OSError):
            attempts = all_attempts(self._run_dir)[-1:]
        self._note(f"{reason}: the run goes on {goes_on}", attempts)
        self._lease.leave(release=True)  # the next launcher need not wait
        while not is_requeued(job_fields(self._job), self._restarts):
            ask("scancel", self._job) if waiting else ask("scontrol", "requeue", self._job)
            time.sleep(LOOK_S)
            self._note(f"{reason}: the run goes on {goes_on}", attempts)  # the disk may have been full

    def _note(self, text: str, attempts: Sequence[Path]) -> None:
        """Note the end of the latest attempt, and append a line to the job's log, unless another node's sentinel was
        first."""
        path = job_log(self._run_dir, self._job)
        with suppress(OSError):
            for attempt in attempts:
                if read_ending(attempt) is None:
                    write_ending(attempt, AttemptEnding(time.time(), UNSEEN, "requeue", text))
        with suppress(OSError), path.open("a+", encoding="utf-8", errors="replace") as log:
            log.seek(max(0, log.tell() - TAIL_BYTES))
            if text not in log.read():
                log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")


if __name__ == "__main__":
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # meant for the run
    job, host = os.environ["SLURM_JOB_ID"], os.environ.get("SLURMD_NODENAME", "node")
    Sentinel(job, Path(sys.argv[1]), sys.argv[2], host).watch()
