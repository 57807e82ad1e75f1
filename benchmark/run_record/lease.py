"""The lease of a run: ``lease.json`` names the holder of the run's folder, who alone writes there.

A holder renews its lease thirty times in ``length_s`` seconds, and writes nothing else once its latest renewal is older
than half of them. Another holder may take the lease when it has not changed for ``length_s`` while the disk answered.
Each judges by its own monotonic clock; the times in the file are for people, because the clocks of nodes differ.

Nobody waits for a holder that is known to be dead with all that wrote for it. Its lease names a lone process, and that
has ended on the same boot of the same machine. A launcher names none: its ranks may outlive it. Nor does rank 0 of
several ranks: the others may still write their shards.

docs/notes/lease.md derives the lengths.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmark.run_record.events.lone_process import has_ended
from benchmark.run_record.file_names import lease_path
from benchmark.run_record.small_files import read_record

JOB_S, MACHINE_S = 120.0, 30.0
"""Lengths of the lease of a Slurm job, and of a run on one machine."""
RENEWALS = 30
"""Renewals, and looks of whoever follows a lease, in its length."""
SENTINEL = "sentinel of "
"""Beginning of a sentinel's name as a holder."""
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EMLINK)
"""Errors of file systems without hard links."""


@dataclass(frozen=True)
class Lease:
    """The contents of ``lease.json``."""

    token: str
    """Name that no other lease has, not even one of the same job."""
    holder: str
    """Holder for people: "job 45", "process 123"."""
    host: str
    since_s: float
    """Time when the holder took the lease, in seconds since the epoch by its clock."""
    renewed_s: float
    """Time of the latest renewal."""
    length_s: float
    """Seconds without a renewal after which another holder may take the lease."""
    attempt: str
    """Attempt that runs under the lease; empty before the first."""
    lone_process: str = ""
    """Identity of the only process that writes under the lease; empty where several may."""

    @property
    def is_sentinel(self) -> bool:
        """Return whether a sentinel took the lease of a launcher that was lost, and sends the job to the queue."""
        return self.holder.startswith(SENTINEL)

    def line(self) -> str:
        """Describe the holder for people."""
        return f"{self.holder} on {self.host}"


class LeaseLost(Exception):
    """Another holder has the run, or nobody renews its lease: this process writes nothing more."""

    def __init__(self, message: str, successor: Lease | None = None) -> None:
        super().__init__(message)
        self.successor = successor


def read_lease(run_dir: Path) -> Lease | None:
    """Return the lease of a run; None if nobody holds the run. Raises OSError if the disk does not say."""
    return read_record(lease_path(run_dir), Lease)


class LeaseWatch:
    """Look at a lease, and count how long it stayed the same while the disk answered."""

    def __init__(self, run_dir: Path, length_s: float) -> None:
        """``length_s``: while there is no lease."""
        self._run_dir, self._length_s = run_dir, length_s
        self.lease: Lease | None = None
        """Lease at the latest look that the disk answered."""
        self.renewals = 0
        """Renewals seen."""
        self.renewed_after_s: float | None = None
        """Monotonic time after which the latest renewal was written; None before the first renewal seen."""
        self.silent_s = 0.0
        """Seconds for which the lease has not changed, at the latest look. They count from a look at which the disk
        answered: while the disk is away no holder can renew its lease."""
        self._began_s: float | None = None
        """Monotonic time when the latest look began; None if the disk did not answer it."""

    @property
    def length_s(self) -> float:
        return self._length_s if self.lease is None else self.lease.length_s

    def look(self) -> Lease | None:
        """Read the lease. Raises OSError if the disk does not say."""
        previous_s, self._began_s = self._began_s, None
        began_s = time.monotonic()
        lease = read_lease(self._run_dir)
        if lease != self.lease:
            if lease is not None and self.lease is not None and lease.token == self.lease.token:
                self.renewals += 1
                self.renewed_after_s = previous_s or self.renewed_after_s
            self.lease, self.silent_s = lease, 0.0
        else:
            pause_s = time.monotonic() - (previous_s or began_s)
            is_continuous = previous_s is not None and pause_s < self.length_s / 4
            self.silent_s = self.silent_s + began_s - (previous_s or began_s) if is_continuous else 0.0
        self._began_s = began_s
        return lease


class HeldLease:
    """The lease of this process, which a thread renews."""

    def __init__(
        self,
        run_dir: Path,
        holder: str,
        length_s: float,
        token: str,
        attempt: str = "",
        on_lost: Callable[[LeaseLost], object] = lambda _: None,
        lone_process: str = "",
    ) -> None:
        """``on_lost``: called in the thread when the lease is lost. ``lone_process``: identity of this process if
        nothing else writes under the lease."""
        now_s, self._path = time.time(), lease_path(run_dir)
        self._lease = Lease(token, holder, socket.gethostname(), now_s, now_s, length_s, attempt, lone_process)
        self._settle_s, self._on_lost = length_s / RENEWALS, on_lost
        self._partial = self._path.with_name(f"{self._path.name}.{token}.partial")
        self._renewed_s: float | None = None
        """Monotonic time when the latest renewal began."""
        self.loss: LeaseLost | None = None
        """Reason for which this process holds the lease no more; None while it may renew it."""
        self._changing, self._closing = threading.Lock(), threading.Event()
        self.watch = LeaseWatch(run_dir, length_s)

    @property
    def token(self) -> str:
        return self._lease.token

    def try_to_take(self, is_free: Callable[[Lease | None], bool]) -> bool:
        """Take the lease if ``is_free`` says of the present one, or of none, that nobody holds the run, if its lone
        process has ended, or if it was not renewed in its length; return whether this process holds it. Raises
        OSError."""
        began_s, lease = time.monotonic(), self.watch.look()
        is_free_now = is_free(lease) or (lease is not None and has_ended(lease.lone_process))
        is_holder = lease is None and is_free_now and self._create()
        if not is_holder:
            is_own = lease is not None and lease.token == self._lease.token
            if not (is_own or (lease is not None and is_free_now) or self.watch.silent_s >= self.watch.length_s):
                return False
            self._write()
            os.replace(self._partial, self._path)
            is_holder = self._is_settled(began_s)
        if is_holder:
            self._renewed_s = began_s
            threading.Thread(target=self._keep_renewing, name="lease", daemon=True).start()
        return is_holder

    def begin(self, attempt: str) -> None:
        """Name the attempt that runs from now on: processes of earlier attempts stop. Raises OSError and LeaseLost."""
        with self._changing:
            self._lease = replace(self._lease, attempt=attempt)
            self._renew()
        self.require()

    def require(self) -> None:
        """Raise LeaseLost if another holder has the run, and OSError while the lease is not renewed."""
        if self.loss is not None:
            raise self.loss
        require_renewed(self._renewed_s, self._lease.length_s, self._path)

    def unrenewed_s(self) -> float:
        """Return the seconds since the latest renewal began."""
        return 0.0 if self._renewed_s is None else time.monotonic() - self._renewed_s

    def leave(self, *, release: bool) -> None:
        """Renew the lease no more. ``release``: nothing of this holder runs any more, so that another one need not wait
        until the lease has run out."""
        self._closing.set()
        with self._changing, suppress(OSError, LeaseLost):
            self.require()
            lease = read_record(self._path, Lease)
            if release and lease is not None and lease.token == self._lease.token:
                self._path.unlink()

    def _keep_renewing(self) -> None:
        while not self._closing.wait(self._settle_s) and self.loss is None:
            with self._changing, suppress(OSError):
                self._renew()
        if self.loss is not None:
            self._on_lost(self.loss)

    def _renew(self) -> None:
        """Write the lease anew. After a long pause another process may be about to take it: then it must settle."""
        if self._closing.is_set():
            return
        began_s = time.monotonic()
        is_late = self._renewed_s is None or began_s - self._renewed_s >= self._lease.length_s / 2
        lease = read_record(self._path, Lease)
        if (is_late and lease is None) or (lease is not None and lease.token != self._lease.token):
            self.loss = lost_to(lease)
            return
        self._write()
        os.replace(self._partial, self._path)
        if not is_late or self._is_settled(began_s):
            self._renewed_s = began_s

    def _create(self) -> bool:
        """Write the lease where there is none; return whether no other process was faster."""
        self._write()
        try:
            os.link(self._partial, self._path)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            began_s = time.monotonic()
            os.replace(self._partial, self._path)
            return self._is_settled(began_s)
        finally:
            with suppress(FileNotFoundError):
                self._partial.unlink()

    def _write(self) -> None:
        self._lease = replace(self._lease, renewed_s=time.time())
        self._partial.write_text(json.dumps(asdict(self._lease)) + "\n", encoding="utf-8")

    def _is_settled(self, began_s: float) -> bool:
        """Return whether the lease, which was read at ``began_s`` and replaced just now, stays this holder's.

        Of two processes that replace it at once, both of which do so quickly, the first one sees the second one's.
        """
        is_quick = time.monotonic() - began_s < self._settle_s
        time.sleep(self._settle_s)
        lease = read_record(self._path, Lease)
        return is_quick and lease is not None and lease.token == self._lease.token


class FollowedLease:
    """The launcher's lease, which a thread of rank 0 follows: its attempt writes, and runs, under that lease alone."""

    def __init__(self, run_dir: Path, token: str, attempt: str, on_lost: Callable[[LeaseLost], object]) -> None:
        """``on_lost``: called in the thread when the lease is lost."""
        self._token, self._attempt, self._path, self._on_lost = token, attempt, lease_path(run_dir), on_lost
        self._watch = LeaseWatch(run_dir, JOB_S)
        self._renewed_s: float | None = None
        self._closing = threading.Event()
        threading.Thread(target=self._follow, name="lease", daemon=True).start()

    def require(self) -> None:
        """Raise OSError while the lease is not renewed."""
        require_renewed(self._renewed_s, self._watch.length_s, self._path)

    def leave(self, *, release: bool) -> None:
        """Follow the lease no more."""
        self._closing.set()

    def _follow(self) -> None:
        """Look at the lease until it is lost. A disk may show an earlier lease for a while: only after this attempt's
        lease another one means a loss."""
        watch, began_s, was_own = self._watch, time.monotonic(), False
        while True:
            with suppress(OSError):
                lease = watch.look()
                is_own = lease is not None and (lease.token, lease.attempt) == (self._token, self._attempt)
                was_own = was_own or is_own
                self._renewed_s = watch.renewed_after_s if is_own else None
                is_other = lease is not None and not is_own
                is_over = was_own or time.monotonic() - began_s >= watch.length_s
                if (is_other and is_over) or watch.silent_s >= watch.length_s:
                    self._on_lost(lost_to(lease if is_other else None))
                    return
            if self._closing.wait(watch.length_s / RENEWALS):
                return


def require_renewed(renewed_s: float | None, length_s: float, path: Path) -> None:
    """Raise OSError unless the lease was renewed in the latter half of its length, before the monotonic time now."""
    if renewed_s is None or time.monotonic() - renewed_s >= length_s / 2:
        raise OSError(errno.ETIMEDOUT, "the lease is not renewed", str(path))


def lost_to(successor: Lease | None) -> LeaseLost:
    if successor is None:
        return LeaseLost("nobody renews the lease of this run")
    attempt = f", with attempt {successor.attempt}" if successor.attempt else ""
    return LeaseLost(f"{successor.line()} holds the run now{attempt}", successor)
