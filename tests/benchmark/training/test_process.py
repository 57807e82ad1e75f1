"""How one process of a run leaves: what it prints, what it leaves behind, with which status."""

import errno
import os
from pathlib import Path

import pytest
import torch

from benchmark.run_record.endings import ENDINGS
from benchmark.training import process
from benchmark.training.engine.meeting_point import MeetingFailed
from benchmark.training.liveness.heartbeat import HangLimits, Heartbeat
from benchmark.training.process import incident_of
from foundation.errors import CheckFailed, InputError
from tests.benchmark.tiny import Inputs

FAILED = ENDINGS["failed"].exit_status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InputError("no such file"), "input"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), "input"),
        (MeetingFailed("in use"), "meeting"),
        (CheckFailed("copies differ"), "check"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "disk"),
        (OSError(errno.EIO, "Input/output error"), "disk"),
        (OSError(errno.ENOTCONN, "Transport endpoint is not connected", "/x"), "disk"),
        (OSError(errno.ESHUTDOWN, "Cannot send after transport endpoint shutdown", "/x"), "disk"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "input"),
        (MemoryError(), "out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), "out of memory"),
        (RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection closed by peer [10.0.0.1]:1"), "lost connection"),
        (RuntimeError("[gloo] Timed out waiting 60000ms for recv operation to complete"), "lost connection"),
        (torch.distributed.DistBackendError("NCCL communicator was aborted on rank 3"), "lost connection"),
        (
            torch.distributed.DistBackendError("ncclRemoteError: A call failed"),
            "lost connection",
        ),
        (RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might"), "device"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "device"),
        (ZeroDivisionError("a bug"), "exception"),
        (KeyboardInterrupt(), "exception"),
    ],
)
def test_kind_of_an_error(error: BaseException, kind: str) -> None:
    heartbeat = Heartbeat(HangLimits(50, 30))
    heartbeat.enter("passes", 3)
    incident = incident_of(error, 2, "n1", heartbeat)
    assert (incident.kind, incident.rank, incident.steps, incident.phase) == (kind, 2, 3, "passes")
    assert "\n" not in incident.message


@pytest.mark.parametrize(("path", "kind"), [("/run/log/attempts/x", "disk"), ("/run/log2/x", "input")])
def test_a_run_folder_that_denies_its_use_is_a_failing_disk(path: str, kind: str) -> None:
    error = PermissionError(errno.EPERM, "Operation not permitted", path)
    heartbeat = Heartbeat(HangLimits(50, 30))
    assert incident_of(error, 2, "n1", heartbeat, Path("/run/log")).kind == kind


@pytest.mark.parametrize(
    ("number", "status"), [(errno.EROFS, FAILED), (errno.ENOTCONN, FAILED), (errno.EACCES, None), (None, None)]
)
def test_a_disk_that_fails_before_a_word_can_be_left_is_no_bad_input(
    number: int | None,
    status: int | None,
    inputs: Inputs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = OSError("an error without a file") if number is None else OSError(number, os.strerror(number), "/run/log")

    def fail(*_: object) -> None:
        raise failed

    class Ended(Exception):
        pass

    def end(with_status: int) -> None:
        raise Ended(with_status)

    monkeypatch.setattr(process, "attempt_path", fail)
    monkeypatch.setattr(process, "end_process", end)
    with pytest.raises(OSError if status is None else Ended) as caught:
        process.run_process(inputs.config(tmp_path / "run"))
    if status is not None:
        assert caught.value.args == (status,)
        assert capsys.readouterr().err == f"error: /run/log: {failed.strerror}\n"
