"""Which of many incidents is the cause."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmark.run_record.attempt_folder import raise_alarm
from benchmark.run_record.incidents import (
    LONGEST_MESSAGE,
    Incident,
    did_not_arrive,
    first_cause,
    own_incident,
    read_incidents,
    write_incident,
)

ONE = Incident(100.0, 0, "n1", 7, "exception", 12, "passes", "ValueError: no")


def of(rank: int, **changes: Any) -> Incident:
    return dataclasses.replace(ONE, rank=rank, host=f"n{rank // 2 + 1}", **changes)


def test_cause_is_the_first_that_is_no_consequence() -> None:
    assert first_cause([]) is None
    lost = [of(rank, kind="lost connection", time_s=90.0 + rank) for rank in range(4)]
    assert first_cause(lost) == lost[0]
    assert first_cause([*lost, of(3, time_s=95.0), of(2, time_s=96.0)]) == of(3, time_s=95.0)
    hang = of(1, kind="hang", time_s=1.0)
    assert first_cause([*lost, hang]) == hang
    assert first_cause([hang, of(2, kind="killed", time_s=50.0)]) == of(2, kind="killed", time_s=50.0)


@pytest.mark.parametrize(
    ("late", "others"),
    [
        ({"state": "T (stopped)"}, {"state": "S (sleeping)"}),
        ({"state": "D (disk sleep)"}, {"state": "R (running)"}),
        ({"steps": 11}, {"steps": 12}),
        ({"phase": "data"}, {"phase": "passes"}),
        ({"waits_in": None}, {"waits_in": "all_reduce"}),
    ],
)
def test_who_did_not_arrive_is_told_from_who_waits(late: dict[str, Any], others: dict[str, Any]) -> None:
    hanging = [of(rank, kind="hang", **(late if rank in (2, 5) else others)) for rank in range(8)]
    assert [incident.rank for incident in did_not_arrive(hanging)] == [2, 5]
    cause = first_cause(hanging)
    assert cause is not None and cause.rank == 2


def test_nobody_is_blamed_where_all_look_alike() -> None:
    assert did_not_arrive([of(rank, kind="hang", waits_in="all_reduce") for rank in range(4)]) == []
    assert did_not_arrive([of(0, kind="hang")]) == [of(0, kind="hang")]
    assert did_not_arrive([]) == []


def test_first_incident_of_a_process_stays_and_damage_is_passed_over(tmp_path: Path) -> None:
    write_incident(tmp_path, of(1, time_s=5.0))
    write_incident(tmp_path, of(1, kind="killed"))
    write_incident(tmp_path, of(0, time_s=7.0))
    (tmp_path / "rank_00002.incident.json").write_text("{}")
    assert read_incidents(tmp_path) == [of(1, time_s=5.0), of(0, time_s=7.0)]


@pytest.mark.parametrize(
    ("alarm", "cause"), [("device: rank 0: Xid 79\n", 0), ("lost connection: rank 2", 1), ("\xff", 1), (None, 1)]
)
def test_clock_that_is_behind_moves_no_blame(alarm: str | None, cause: int, tmp_path: Path) -> None:
    """Rank 0 fails, and srun kills rank 1, whose node's clock is an hour behind."""
    for incident in (of(0, kind="device"), of(1, kind="killed", time_s=-3500.0), of(2, kind="lost connection")):
        write_incident(tmp_path, incident)
    if alarm is not None:
        raise_alarm(tmp_path, alarm)
    found = first_cause(read_incidents(tmp_path))
    assert found is not None and found.rank == cause


def test_incident_is_one_line() -> None:
    incident = own_incident(3, "n2", "device", steps=None, phase="join", message="CUDA error:\n  unknown" + "x" * 1000)
    assert len(incident.message) == LONGEST_MESSAGE
    assert incident.line().startswith("rank 3 on n2 in join: device: CUDA error: unknown")
    stopped = of(1, kind="hang", state="T (stopped)", waits_in=None)
    assert stopped.line() == "rank 1 on n1 after step 12, in passes: hang: ValueError: no (T (stopped))"
    assert "\n" not in incident.line()
    gloo = "[/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:23246. This is typically "
    gloo += "caused by a remote worker crashing. GLHF! \N{BEACH WITH UMBRELLA}"
    lost = own_incident(3, "n2", "lost connection", steps=None, phase="join", message=f"RuntimeError: {gloo}")
    assert lost.message == "RuntimeError: Connection closed by peer [127.0.0.1]:23246."
