"""Run one training process: it is watched, has a log of its own, and leaves at once when it fails."""

import contextlib
import errno
import faulthandler
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, TextIO

import torch

from benchmark.config.run_config import RunConfig
from benchmark.run_record.attempt_folder import make_run_folder, raise_alarm
from benchmark.run_record.checkpoint_folder import ABSENT
from benchmark.run_record.endings import ENDINGS, Ending
from benchmark.run_record.file_names import COLLECTIVES_FILE, RANK_LOG, STACKS_FILE, attempt_path, rank_file
from benchmark.run_record.incidents import Incident, IncidentKind, own_incident, write_incident
from benchmark.run_record.phases import PhaseLog
from benchmark.run_record.small_files import Answer, wait_for, warn
from benchmark.training.debugging.collective_trace import explaining
from benchmark.training.engine.distributed import end_process
from benchmark.training.engine.meeting_point import MeetingFailed
from benchmark.training.engine.rank_environment import Environment, read_environment
from benchmark.training.liveness.heartbeat import HangLimits, Heartbeat
from benchmark.training.liveness.watchdog import STACKS_SIGNAL, watched
from benchmark.training.run_folder import refuse_finished
from benchmark.training.train import train
from foundation.errors import CheckFailed, InputError

TELLING_S = 10.0
"""Seconds that writing down a failure may take."""
OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory", re.IGNORECASE)
LOST = re.compile(
    "connection (closed|reset|refused)|broken pipe|socket closed|peer closed|timed out|timeout|remote process exited"
    "|communicator was aborted|ncclRemoteError|unhandled system error|waiting for (recv|send)|application timeout",
    re.IGNORECASE,
)
"""Words by which gloo, NCCL and the store report that another process is gone."""
DEVICE = re.compile("CUDA error|cuBLAS|cuDNN|NCCL error|uncorrectable|Xid|launch failure", re.IGNORECASE)
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN)
"""Error numbers that mean a failing disk, whether or not the error names a file."""
WRONG_FILE = (
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ELOOP),
    *(errno.ENAMETOOLONG, errno.EINVAL, errno.EMFILE, errno.ENODEV, errno.ENXIO),
)
"""Error numbers of a file that a person has to mend. Any other error about a file comes from the disk or the network
and may pass: a parallel file system that has disconnected a client reports ENOTCONN, ESHUTDOWN or ETIMEDOUT."""


def run_process(config: RunConfig) -> NoReturn:
    """Train as this process's rank, and exit with its status; failures are recorded in the attempt's folder.

    The process that fails first prints one line with the reason to the terminal; tracebacks go to the logs.
    """
    environment = read_environment()
    try:
        _train_watched(config, environment)
    except OSError as error:
        if error.filename is None or not (_kind(error) == "disk" or _is_denied(error, config.run_dir)):
            raise
        # no word can be left in the attempt's folder: the status alone says that this was no bad input
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr, flush=True)
        end_process(ENDINGS["failed"].exit_status)


def _train_watched(config: RunConfig, environment: Environment) -> NoReturn:
    """Train under the watchdog. Raises OSError if the files that watch the process cannot be written, even after a
    wait for the disk; a folder that a launcher has written before is waited for, too, where it denies the use."""
    attempt = attempt_path(config.run_dir, environment.attempt)
    answers = (*ABSENT, FileExistsError, *((PermissionError,) if environment.launched_s is None else ()))

    def wait_for_disk(act: Callable[[], Answer]) -> Answer:
        return wait_for(act, config.system.start_limit_s / 2, warn, answers=answers)

    terminal = os.dup(sys.stderr.fileno())
    if environment.rank == 0:
        wait_for_disk(lambda: refuse_finished(config.run_dir))

    def open_attempt() -> None:
        make_run_folder(config.run_dir)
        attempt.mkdir(parents=True, exist_ok=True)
        if environment.rank > 0:
            _log_to(rank_file(attempt, environment.rank, RANK_LOG))

    wait_for_disk(open_attempt)
    heartbeat = Heartbeat(HangLimits(config.system.start_limit_s, config.system.hang_floor_s))
    watchdog = (
        watched(heartbeat, attempt, environment.rank, environment.host)
        if config.guards.watchdog
        else contextlib.nullcontext()
    )
    stacks, collectives = (rank_file(attempt, environment.rank, name) for name in (STACKS_FILE, COLLECTIVES_FILE))
    stacks_file = wait_for_disk(lambda: stacks.open("w"))
    with watchdog, _stacks_on_signal(stacks_file), explaining(heartbeat, collectives):
        try:
            ending = train(config, environment, PhaseLog(heartbeat))
        except BaseException as error:
            incident = incident_of(error, environment.rank, environment.host, heartbeat, config.run_dir)
            is_first = _tell(attempt, incident)
            heartbeat.leave()
            if not isinstance(error, InputError | CheckFailed) and incident.kind != "input":
                traceback.print_exc()
            words = f"error: {_words(incident, environment)}\n".encode()
            if is_first and environment.launched_s is None:  # a launcher has its own line
                os.write(terminal, words)
            if environment.rank > 0:
                os.write(sys.stderr.fileno(), words)
            failure: Ending = "bad input" if incident.kind == "input" else "failed"
            end_process(ENDINGS[failure].exit_status)
    end_process(ENDINGS[ending].exit_status)


def incident_of(
    error: BaseException, rank: int, host: str, heartbeat: Heartbeat, run_dir: Path | None = None
) -> Incident:
    """Describe an exception as an incident for the launcher: its kind decides whether the run is started again.

    ``run_dir``: the run's folder, which could be written when the attempt began.
    """
    message = str(error) if isinstance(error, InputError | CheckFailed) else f"{type(error).__name__}: {error}"
    kind = _kind(error)
    if kind == "input" and run_dir is not None and _is_denied(error, run_dir):
        kind = "disk"
    if kind not in ("input", "check", "meeting"):
        message = message.partition("\n")[0]  # PyTorch's go on with stacks in C++
    return own_incident(rank, host, kind, steps=heartbeat.steps, phase=heartbeat.phase, message=message)


def _is_denied(error: BaseException, run_dir: Path) -> bool:
    """Return whether a file system denies the use of a file in the run's folder, as one does that is mounted anew."""
    if not isinstance(error, PermissionError) or not isinstance(error.filename, str | Path):
        return False
    return Path(error.filename).absolute().is_relative_to(run_dir.absolute())


def _kind(error: BaseException) -> IncidentKind:
    text = str(error)
    match error:
        case MeetingFailed():
            return "meeting"
        case InputError():
            return "input"
        case CheckFailed():
            return "check"
        case OSError() if error.errno in DISK_ERRORS:
            return "disk"
        case OSError() if error.filename is not None:
            return "input" if error.errno in WRONG_FILE else "disk"
        case MemoryError() | torch.OutOfMemoryError():
            return "out of memory"
    if OUT_OF_MEMORY.search(text):
        return "out of memory"
    if LOST.search(text):
        return "lost connection"
    return "device" if DEVICE.search(text) else "exception"


def _tell(attempt: Path, incident: Incident) -> bool:
    """Record the incident and raise the alarm; return whether it is the first.

    A thread does this, so that a failing disk does not keep the process from leaving.
    """
    alarms: list[bool] = []

    def tell() -> None:
        with contextlib.suppress(OSError):
            wait_for(lambda: write_incident(attempt, incident), TELLING_S, lambda _: None)
            alarms.append(raise_alarm(attempt, f"{incident.kind}: rank {incident.rank}: {incident.message}"))

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    telling.join(TELLING_S)
    return alarms != [False]  # another rank was first; a disk that did not answer in time says nothing of that


def _words(incident: Incident, environment: Environment) -> str:
    """Return the error line for people, with the rank unless it is the only one or the failure concerns all ranks."""
    is_only_rank = environment.world_size == 1
    return incident.message if incident.kind in ("input", "check") or is_only_rank else incident.line()


def _log_to(path: Path) -> None:
    """Send the output of this process to a file, including that of libraries that write to the descriptors
    themselves."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    sys.stdout.flush()
    sys.stderr.flush()
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)


@contextlib.contextmanager
def _stacks_on_signal(stacks: TextIO) -> Iterator[None]:
    """Write the stacks of all threads to the file whenever the watchdog, or kill -QUIT, asks for it."""
    with stacks as file:
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True, chain=False)
        try:
            yield
        finally:
            faulthandler.unregister(STACKS_SIGNAL)
