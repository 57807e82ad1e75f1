"""One holder at a time: a lease that is renewed is left alone, a silent one is taken once, and its holder learns it."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmark.run_record import lease as module
from benchmark.run_record.events.lone_process import process_identity
from benchmark.run_record.file_names import lease_path
from benchmark.run_record.lease import FollowedLease, HeldLease, Lease, LeaseLost, LeaseWatch, read_lease
from benchmark.run_record.small_files import write_object

LENGTH_S = 3600.0
"""By the clock of the test. The holder's thread, which waits by that of the machine, comes too late to renew it."""
QUICK_S = 0.3
"""In this length the holder's thread renews the lease, a hundred times a second."""


class Clock:
    """Time that only a test, and whoever sleeps, lets pass: none passes while a busy machine does something else."""

    time = staticmethod(time.time)

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def is_none(lease: Lease | None) -> bool:
    return lease is None


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Callable[..., HeldLease]]:
    leases: list[HeldLease] = []

    def hold(name: str, *, attempt: str = "", length_s: float = LENGTH_S) -> HeldLease:
        leases.append(HeldLease(tmp_path, name, length_s, f"token-of-{name}", attempt))
        return leases[-1]

    yield hold
    for lease in leases:
        lease.leave(release=False)


def wait(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_free_run_is_taken_at_once_and_a_renewed_lease_never(
    tmp_path: Path, held: Callable[..., HeldLease], clock: Clock
) -> None:
    first, second = held("job 1"), held("job 2")
    assert first.try_to_take(is_none)
    began = read_lease(tmp_path)
    assert began is not None and began.line().startswith("job 1 on ")
    for _ in range(20):  # two lengths
        clock.sleep(LENGTH_S / 10)
        first._renew()
        first.require()
        assert not second.try_to_take(is_none)
    assert second.watch.renewals == 19
    first.leave(release=True)
    assert not lease_path(tmp_path).exists()
    assert second.try_to_take(is_none)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lease.json"]


def test_a_silent_lease_is_taken_by_one_and_its_holder_learns_of_it(
    tmp_path: Path, held: Callable[..., HeldLease], clock: Clock
) -> None:
    first = held("job 1")
    assert first.try_to_take(is_none)
    first.leave(release=False)  # as if it were stopped
    others, winners = [held("job 2"), held("job 3")], list[HeldLease]()
    began = clock.now_s
    while not winners:
        winners += [lease for lease in others if lease.try_to_take(is_none)]
        clock.sleep(LENGTH_S / 10)
    assert LENGTH_S <= clock.now_s - began < 1.2 * LENGTH_S
    (winner,) = winners
    (loser,) = [lease for lease in others if lease is not winner]
    assert not loser.try_to_take(is_none)
    first._closing.clear()  # it goes on
    first._renew()
    with pytest.raises(LeaseLost, match=f"{winner._lease.holder} on .* holds the run now"):
        first.require()
    winner.require()


def test_two_that_take_at_once_see_each_other(tmp_path: Path, held: Callable[..., HeldLease], clock: Clock) -> None:
    """The first of two that replace a silent lease sees the second one's as it looks again."""
    first, second = held("job 1"), held("job 2")
    for lease in (first, second):
        lease._write()
        os.replace(lease._partial, lease_path(tmp_path))
    assert [lease._is_settled(clock.now_s) for lease in (first, second)] == [False, True]


def test_time_in_which_the_disk_is_away_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    errors = list[int]()
    lease = Lease("t", "job 1", "n1", 1.0, 1.0, 120.0, "0001")

    def read(run_dir: Path) -> Lease | None:
        if errors:
            raise OSError(errors.pop(), "away")
        return lease

    monkeypatch.setattr(module, "read_lease", read)
    watch = LeaseWatch(tmp_path, 120.0)

    def look(after_s: float) -> float:
        clock.sleep(after_s)
        watch.look()
        return watch.silent_s

    assert [look(10.0) for _ in range(4)] == [0.0, 10.0, 20.0, 30.0]
    assert [look(60.0), look(10.0)] == [0.0, 10.0]  # a call that hung for a minute
    errors.append(errno.EIO)
    with pytest.raises(OSError, match="away"):
        look(10.0)
    assert [look(10.0), look(10.0)] == [0.0, 10.0]
    assert (watch.renewals, watch.renewed_after_s) == (0, None)
    lease = Lease("t", "job 1", "n1", 1.0, 2.0, 120.0, "0001")
    look(5.0)
    assert (watch.renewals, watch.renewed_after_s, watch.silent_s) == (1, clock.now_s - 5.0, 0.0)


def test_a_holder_writes_nothing_while_the_disk_is_away_and_goes_on_afterwards(
    held: Callable[..., HeldLease], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    lease = held("job 1", length_s=QUICK_S)
    assert lease.try_to_take(is_none)
    replace = os.replace

    def away(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "lease.json")

    def is_renewed() -> bool:
        try:
            lease.require()
            return True
        except OSError:
            return False

    monkeypatch.setattr("benchmark.run_record.lease.os.replace", away)
    clock.sleep(QUICK_S)
    assert not is_renewed()
    monkeypatch.setattr("benchmark.run_record.lease.os.replace", replace)
    wait(is_renewed)
    assert lease.loss is None


def test_an_attempt_stops_when_the_lease_names_another_or_is_not_renewed(
    tmp_path: Path, held: Callable[..., HeldLease], clock: Clock
) -> None:
    losses: list[LeaseLost] = []
    lease = held("job 1", attempt="0001", length_s=QUICK_S)
    assert lease.try_to_take(is_none)
    with lease._changing:  # it renews nothing meanwhile
        attempt = FollowedLease(tmp_path, "token-of-job 1", "0001", losses.append)
        with pytest.raises(OSError, match="not renewed"):
            attempt.require()  # nothing is known before a renewal was seen

    def is_renewed() -> bool:
        try:
            attempt.require()
            return True
        except OSError:
            return False

    wait(is_renewed)
    lease.begin("0002")
    wait(lambda: losses)
    assert str(losses[0]).endswith("holds the run now, with attempt 0002") and not is_renewed()
    FollowedLease(tmp_path, "token-of-job 1", "0002", losses.append)
    lease.leave(release=False)

    def is_told() -> bool:
        clock.sleep(QUICK_S / 30)
        return len(losses) > 1

    wait(is_told)
    assert str(losses[1]) == "nobody renews the lease of this run"


def test_a_file_system_without_links_and_a_damaged_lease(
    tmp_path: Path, held: Callable[..., HeldLease], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "no links")

    first, second = held("job 1"), held("job 2")
    with monkeypatch.context() as patch:
        patch.setattr("benchmark.run_record.lease.os.link", no_links)
        assert first.try_to_take(is_none)
    first.leave(release=True)
    lease_path(tmp_path).write_text('{"token": ')
    began = clock.now_s
    while not second.try_to_take(is_none):
        clock.sleep(LENGTH_S / 10)
    assert LENGTH_S <= clock.now_s - began < 1.2 * LENGTH_S


IMPORT = "import sys; from benchmark.run_record.events.lone_process import process_identity"
IDENTIFY = f"{IMPORT}; print(process_identity(), flush=True)"


@pytest.mark.skipif(not process_identity(), reason="the system does not identify processes")
def test_the_lease_of_a_lone_process_is_taken_at_its_end(tmp_path: Path, held: Callable[..., HeldLease]) -> None:
    words = [sys.executable, "-c", f"{IDENTIFY}; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        living = process.stdout.readline().strip()
        machine, number, start = living.rsplit(" ", 2)
        elsewhere = f"another-boot {machine.split()[1]} {number} {start}"
        another_namespace = f"{machine.split()[0]} pid:[1] {number} {start}"

        def is_taken(identity: str) -> bool:
            write_object(lease_path(tmp_path), Lease("token", "process 1", "n1", 1.0, 1.0, 120.0, "", identity))
            lease = held("process 2")
            taken = lease.try_to_take(is_none)
            lease.leave(release=False)
            return taken

        assert not is_taken(living)
        assert is_taken(f"{machine} {number} {int(start) + 1}")  # the number was given to another process
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_taken(living)  # its parent has not asked for its end
        process.wait()
        assert is_taken(living)
        for identity in ("", elsewhere, another_namespace, f"{machine} x {start}", "a", "a b"):
            assert not is_taken(identity)
