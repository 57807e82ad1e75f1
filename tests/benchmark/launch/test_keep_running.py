"""Attempts follow each other until the run has ended or is given up; one launcher at a time in a folder."""

import errno
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmark.launch import keep_running as module
from benchmark.launch.keep_running import Refused, RunMachines, keep_running, patiently
from benchmark.launch.next_attempt import Decision
from benchmark.run_record.attempt_folder import all_attempts, read_ending
from benchmark.run_record.incidents import own_incident, write_incident
from benchmark.run_record.lease import HeldLease, Lease, lost_to
from benchmark.run_record.small_files import StoppedWaiting
from tests.benchmark.run_record.test_run_completion import CONFIG, LINES, log_of


@dataclass
class Practice(RunMachines):
    """A place in which ``during(attempt's folder)`` is all that an attempt does."""

    during: Callable[[Path], int]
    name: str = "job 5"
    ordered: str | None = None
    chosen: list[tuple[str, ...]] = field(default_factory=list)

    def choose(self, exclude: tuple[str, ...]) -> Decision | None:
        self.chosen.append(exclude)
        return None

    def start(self, attempt: str, log: Path) -> int:
        return self.during(log.parent)

    def look(self) -> tuple[int, tuple[str, ...]]:
        return 1, ()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("benchmark.launch.keep_running.time.sleep", slept.append)
    return slept


def test_run_is_started_again_until_it_has_ended(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], pauses: list[float]
) -> None:
    def during(attempt: Path) -> int:
        if attempt.name == "0003":
            return finish(tmp_path)
        write_incident(attempt, own_incident(1, "n1", "killed", steps=4, phase="data", message="gone"))
        (tmp_path / "checkpoints" / f"step_{int(attempt.name)}").mkdir(parents=True)
        return 137

    place = Practice(during)
    decision = keep_running(tmp_path, place)
    assert (decision.action, decision.status) == ("done", 0)
    lines = capfd.readouterr().err.splitlines()
    assert lines[1] == (
        "attempt 0002: rank 1 on n1 after step 4, in data: killed: gone; starting again from step 2 on, without n1"
    )
    assert (lines[2], len(lines)) == ("attempt 0003: the run has ended: success", 3)
    ends = [read_ending(folder) for folder in all_attempts(tmp_path)]
    assert [end and end.action for end in ends] == ["again", "again", "done"]
    assert place.chosen == [(), (), ("n1",)]


def test_an_attempt_that_was_killed_after_its_run_stop_has_ended_the_run(tmp_path: Path) -> None:
    def during(attempt: Path) -> int:
        write_incident(attempt, own_incident(0, "n1", "killed", steps=20, phase="end", message="gone"))
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
        (tmp_path / "result_2.txt").write_text(log_of(*LINES[:5]))
        return 137

    decision = keep_running(tmp_path, Practice(during))
    assert (decision.action, decision.status, decision.reason) == ("done", 0, "the run has ended: success")
    assert len(all_attempts(tmp_path)) == 1


def test_attempts_without_progress_come_at_longer_and_longer_intervals(tmp_path: Path, pauses: list[float]) -> None:
    decision = keep_running(tmp_path, Practice(lambda attempt: 1))
    assert (pauses, decision.action, decision.status) == ([0.0, 1.0, 5.0, 20.0], "stop", 1)


def test_what_nobody_explains_is_shown_from_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], pauses: list[float]
) -> None:
    def during(attempt: Path) -> int:
        (attempt / "launcher.log").write_text("\n".join(f"line {number}" for number in range(50)))
        return 1

    keep_running(tmp_path, Practice(during))
    lines = capfd.readouterr().err.splitlines()
    assert lines[:20] == [f"line {number}" for number in range(30, 50)]
    assert lines[-1].startswith("error: the processes ended with status 1 and left no word; no progress in 5 attempts")


def test_of_what_is_refused_only_the_line_that_says_so_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], pauses: list[float]
) -> None:
    def during(attempt: Path) -> int:
        (attempt / "launcher.log").write_text("error: seed -1\nerror: seed -1\nTraceback of the launcher\n")
        return 2

    decision = keep_running(tmp_path, Practice(during))
    assert (decision.action, decision.status, len(all_attempts(tmp_path))) == ("stop", 2, 2)
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if "seed" in line] == ["error: seed -1"] * 2  # once of each attempt


def test_an_order_ends_it_even_where_the_processes_fail_on_the_way_out(tmp_path: Path) -> None:
    def during(attempt: Path) -> int:
        place.ordered = "SIGUSR2"
        return 70

    place = Practice(during)
    decision = keep_running(tmp_path, place)
    assert (decision.action, decision.status, len(all_attempts(tmp_path))) == ("requeue", 75, 1)


def test_exit_file_before_an_attempt_ends_it(tmp_path: Path) -> None:
    (tmp_path / "exit").touch()
    decision = keep_running(tmp_path, Practice(lambda attempt: 0))
    assert (decision.action, decision.status, all_attempts(tmp_path)) == ("stop", 75, [])
    assert not (tmp_path / "exit").exists()


def test_folder_in_use_is_refused_and_a_silent_lease_is_taken(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = HeldLease(tmp_path, "job 5", 2.0, "token")
    assert holder.try_to_take(lambda lease: lease is None)
    other = Practice(lambda attempt: finish(tmp_path), name="job 6")
    host = socket.gethostname()
    with pytest.raises(
        Refused, match=f"{tmp_path}: job 5 on {host} runs there; end it first, or choose another folder"
    ):
        keep_running(tmp_path, other)
    assert all_attempts(tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} - {"lease.json.token.partial"} == {"lease.json"}  # it is renewed
    holder.leave(release=False)
    assert keep_running(tmp_path, other).action == "done"
    line = f"{tmp_path}: job 5 on {host} holds the run; it is waited for until it has not renewed its lease for 2 s"
    assert line in capfd.readouterr().err
    with pytest.raises(Refused, match="holds a finished run \\(success\\); choose another folder"):
        keep_running(tmp_path, other)
    assert not (tmp_path / "lease.json").exists()


def test_a_launcher_that_lost_its_lease_writes_nothing_more(tmp_path: Path, pauses: list[float]) -> None:
    """Neither does it send the run anywhere: another launcher has it. After a sentinel the run goes to the queue."""
    place = Practice(lambda attempt: 1)

    def lose(successor: str) -> Callable[[Path], int]:
        def during(attempt: Path) -> int:
            assert place.lease is not None
            place.lease.loss = lost_to(Lease("t", successor, "n2", 1.0, 1.0, 120.0, ""))
            return 1

        return during

    place.during = lose("job 6")
    with pytest.raises(Refused, match="job 6 on n2 holds the run now; this launcher stops"):
        keep_running(tmp_path, place)
    assert read_ending(tmp_path / "attempts" / "0001") is None
    (tmp_path / "lease.json").unlink()
    place.lease, place.during = None, lose("sentinel of job 5")
    decision = keep_running(tmp_path, place)
    assert (decision.action, decision.status) == ("requeue", 75)


def finish(run_dir: Path) -> int:
    (run_dir / "summary.json").write_text(json.dumps({"status": "success"}))
    return 0


def failing(act: Callable[..., Any], *numbers: int, path: str = "/logs/attempts/0003") -> Callable[..., Any]:
    """Return ``act``, whose first calls fail with these errors."""
    errors = list(numbers)

    def call(*arguments: Any, **options: Any) -> Any:
        if errors:
            number = errors.pop(0)
            raise OSError(number, os.strerror(number), path)
        return act(*arguments, **options)

    return call


def fail_in_launcher(monkeypatch: pytest.MonkeyPatch, name: str, *numbers: int) -> None:
    monkeypatch.setattr(module, name, failing(getattr(module, name), *numbers))


def test_disk_that_refuses_for_a_while_is_waited_for(capfd: pytest.CaptureFixture[str], pauses: list[float]) -> None:
    act = failing(lambda: "made", errno.EPERM, errno.EROFS)
    assert patiently(act, Practice(lambda attempt: 0)) == "made"
    assert pauses == [5.0, 5.0]
    (line,) = capfd.readouterr().err.splitlines()
    assert line == "/logs/attempts/0003: Operation not permitted; tried again for up to 1800 s"


def test_order_to_stop_ends_the_waiting(pauses: list[float]) -> None:
    with pytest.raises(StoppedWaiting):
        patiently(failing(lambda: "made", errno.EIO), Practice(lambda attempt: 0, ordered="SIGTERM"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOTCONN, errno.ESTALE, errno.EPERM, errno.EROFS])
def test_folder_that_held_a_run_is_waited_for(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    """As one where a job comes back from the queue while the disk is away."""
    (tmp_path / "attempts").mkdir()
    fail_in_launcher(monkeypatch, "make_run_folder", number, number)
    fail_in_launcher(monkeypatch, "finished_status", number)
    assert keep_running(tmp_path, Practice(lambda attempt: finish(tmp_path))).action == "done"
    assert pauses == [5.0] * 3


def test_folder_of_another_user_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    (tmp_path / "attempts").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: (tmp_path / "attempts").stat().st_uid + 1)
    fail_in_launcher(monkeypatch, "make_run_folder", errno.EACCES)
    with pytest.raises(Refused, match="Permission denied; choose another folder"):
        keep_running(tmp_path, Practice(lambda attempt: 0))
    assert pauses == []


def test_folder_that_is_away_where_a_run_goes_on_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    """As on a node that has not mounted it: nobody would see a refusal."""
    place = Practice(lambda attempt: finish(tmp_path))
    place.goes_on = True
    fail_in_launcher(monkeypatch, "make_run_folder", errno.EACCES, errno.ENOENT)
    assert keep_running(tmp_path, place).action == "done"
    assert pauses == [5.0] * 2


def test_new_folder_that_cannot_be_made_is_refused_at_once(tmp_path: Path, pauses: list[float]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="Not a directory; choose another folder"):
        keep_running(tmp_path / "file" / "run", Practice(lambda attempt: 0))
    assert pauses == []


@pytest.mark.parametrize("name", ["newest_checkpoint", "new_attempt", "decide", "write_ending"])
def test_errors_of_a_disk_between_attempts_are_waited_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    def during(attempt: Path) -> int:
        return finish(tmp_path)

    fail_in_launcher(monkeypatch, name, errno.ENOTCONN, errno.EIO)
    decision = keep_running(tmp_path, Practice(during))
    assert (decision.action, len(all_attempts(tmp_path)), pauses) == ("done", 1, [5.0, 5.0])


def test_disk_that_stays_away_sends_the_run_back_to_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "DISK_S", 0.0)
    fail_in_launcher(monkeypatch, "new_attempt", errno.EIO)
    decision = keep_running(tmp_path, Practice(lambda attempt: 0))
    assert (decision.action, decision.status) == ("requeue", 75)
    assert "error: /logs/attempts/0003: Input/output error" in capfd.readouterr().err
