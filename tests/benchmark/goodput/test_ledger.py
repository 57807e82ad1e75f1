"""The ledger of runs whose every second is known."""

import json
from pathlib import Path

import pytest
from hypothesis import given

from benchmark.goodput.ledger import GoodputLedger, as_utc, device_hours, make_ledger, read_ledger
from benchmark.goodput.recorded_attempts import RecordedAttempt
from benchmark.results.recorded_events import RecordedEvent
from stage.errors import InputError
from tests.benchmark.goodput.supervised_run import SupervisedRun, ended_by_devices, killed_and_hung
from tests.benchmark.goodput.test_wall_time import recorded
from tests.benchmark.report.runs import START_MS, MadeRun, restarted_run, write_run


def seconds(ledger: GoodputLedger) -> dict[str, float]:
    return {kind: ms / 1000 for kind, ms in ledger.by_kind.items() if ms}


def test_every_second_of_a_run_of_three_attempts(tmp_path: Path) -> None:
    ledger = read_ledger(killed_and_hung(tmp_path / "run"))
    assert seconds(ledger) == {
        "queue": 60.0,
        "start": 12.0,
        "init": 15.0,
        "productive": 4.0,
        "evaluation": 3.0,
        "checkpoint": 0.25,
        "lost": 1.4 + 1.5,
        "hang": 36.0,
        "stop": 4.0,
        "idle": 0.2,
    }
    assert ledger.whole_ms == sum(ledger.by_kind.values()) == 137_350
    assert ledger.goodput == 4000 / 137_350
    assert ledger.goodput_without_queue == 4000 / 77_350
    assert (ledger.steps_kept, ledger.steps_lost, ledger.steps_skipped) == (8, 5, 0)
    assert (ledger.devices, ledger.remarks, ledger.expected) == (4, [], None)


def test_every_attempt_has_its_cause_and_its_cost(tmp_path: Path) -> None:
    killed, hung, last = read_ledger(killed_and_hung(tmp_path / "run")).attempts
    assert [row.kind for row in (killed, hung, last)] == ["killed", "hang", "finished"]
    assert killed.cause is not None
    assert (killed.cause.rank, killed.cause.host, killed.action) == (3, "n2", "again")
    assert (killed.steps, killed.steps_lost, killed.cost_ms) == (6, 2, 1_400 + 2_000 + 100 + 4_000 + 5_000)
    assert (hung.steps, hung.steps_lost, hung.cost_ms) == (3, 3, 1_500 + 36_000 + 100 + 4_000 + 5_000)
    assert (last.steps, last.steps_lost, last.cost_ms) == (4, 0, 0)
    assert (killed.begun_ms, killed.ended_ms) == (START_MS + 60_000, START_MS + 76_150)
    assert [row.failed for row in (killed, hung, last)] == [True, True, False]
    assert hung.restart_ms == hung.cost_ms - 1_500


def test_device_hours_are_those_that_stood_still(tmp_path: Path) -> None:
    ledger = read_ledger(killed_and_hung(tmp_path / "run"))
    assert ledger.device_hours_lost == pytest.approx(4 * (12.5 + 46.6) / 3600)
    assert device_hours(3_600_000, None) is None


def test_runs_of_before_attempts_were_counted(tmp_path: Path) -> None:
    """The time between a process's last event and the next one's first is unknown, and said to be."""
    ledger = read_ledger(restarted_run(tmp_path / "run"))
    assert seconds(ledger) == {
        "init": 2.0,
        "productive": 4.0,
        "evaluation": 3.0,
        "checkpoint": 0.25,
        "lost": 1.2,
        "other": 1.0,
        "unknown": 30.0,
    }
    assert [(row.name, row.kind, row.steps_lost) for row in ledger.attempts] == [
        ("1", "unknown", 3),
        ("2", "finished", 0),
    ]
    assert ledger.attempts[0].cost_ms == 1_200 + 30_000
    assert ledger.devices == 2
    alone = read_ledger(write_run(tmp_path / "alone"))
    assert seconds(alone) == {"init": 2.0, "productive": 6.0, "evaluation": 4.5, "checkpoint": 0.5}


def test_steps_left_nowhere_are_lost_once_the_attempt_has_ended(tmp_path: Path) -> None:
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.step()
    run.save()
    run.written()
    run.step()
    run.step()
    running = read_ledger(run.end())
    assert (running.attempts[0].kind, running.steps_kept, running.steps_lost) == ("running", 3, 0)
    assert running.remarks == ["2 steps are in no whole checkpoint yet: a restart would do them again"]
    run.incident("exception", "ValueError: no")
    run.ended(70, "stop", "the same error came twice")
    ended = read_ledger(run.folder)
    assert (ended.attempts[0].kind, ended.steps_kept, ended.steps_lost) == ("exception", 1, 2)
    assert seconds(ended)["lost"] == 1.0
    assert ended.remarks == []


def test_skipped_steps_are_told_apart(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    run.begin()
    run.step()
    run.wait(0.5)
    run.emit("step", mlperf=False, trained_tokens=4096, step_s=0.5, skipped=True)
    ledger = read_ledger(run.end())
    assert (ledger.steps_kept, ledger.steps_lost, ledger.steps_skipped) == (1, 0, 1)
    assert seconds(ledger)["lost"] == 0.5


@pytest.mark.parametrize("status", [75, 1])
def test_interrupted_attempt_is_no_failure(tmp_path: Path, status: int) -> None:
    """torchrun makes a 1 of the processes' 75."""
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.step()
    run.save()
    run.emit("run_stop", kind="INTERVAL_END", status="aborted")
    run.written(after_s=2)
    run.ended(status, "requeue", "saved and stopped: interrupted")
    submitted_s = run.now_s
    run.wait(100)
    run.launch(resumed_at=1, submitted_s=submitted_s)
    run.step()
    ledger = read_ledger(run.finish())
    assert [(row.kind, row.failed) for row in ledger.attempts] == [("interrupted", False), ("finished", False)]
    assert (ledger.attempts[0].cost_ms, ledger.attempts[0].queued_ms) == (2_000 + 9_000, 100_000)
    assert seconds(ledger)["stop"] == 4.0
    assert ledger.steps_lost == 0


def test_clock_that_went_back_is_named(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    run.begin()
    run.step()
    run.wait(-3600)
    run.step()
    run.step()
    ledger = read_ledger(run.end())
    assert seconds(ledger) == {"init": 2.0, "productive": 1.0}
    assert ledger.steps_kept == 3
    (remark,) = ledger.remarks
    assert remark.startswith("the clock went back by 3,599.500 s at 2023-11-14 21:13:23Z: no time is counted there")


def test_rate_of_failures_is_told_from_the_third_on(tmp_path: Path) -> None:
    run = ended_by_devices(tmp_path / "run", save_steps=2)
    for _ in range(4):
        run.step()
    expected = read_ledger(run.finish()).expected
    assert expected is not None
    assert (expected.failures, expected.run.save_steps, expected.run.step_s) == (3, 2, 0.5)
    assert (expected.run.restart_s, expected.run.pause_s, expected.run.write_s) == (9.0, 0.25, 2.0)
    assert expected.run.mtbf_s == pytest.approx((4 * 9 + 3 * 4 * 1.25 + 2 + 2) / 3)
    assert 0 < expected.goodput < 1


@given(recorded())
def test_kinds_add_up_to_the_whole(made: tuple[list[RecordedAttempt], list[RecordedEvent]]) -> None:
    """Whatever the files say."""
    ledger = make_ledger(*made, devices=8, finished=False)
    assert sum(ledger.by_kind.values()) == ledger.whole_ms
    of_attempts = [sum(row.by_kind.values()) for row in ledger.attempts]
    assert sum(of_attempts) == ledger.whole_ms
    assert sum(row.steps_lost for row in ledger.attempts) == ledger.steps_lost
    assert 0 <= sum(row.cost_ms for row in ledger.attempts) <= ledger.whole_ms


def test_events_of_no_time_are_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    whole = read_ledger(folder)
    with (folder / "events.jsonl").open("a") as file:
        for time_ms in (0, -1, 10**30):
            file.write(json.dumps({"time_ms": time_ms, "key": "step", "trained_tokens": 1, "step_s": 1}) + "\n")
    assert read_ledger(folder).by_kind == whole.by_kind


@pytest.mark.parametrize("config", ["", "[1]", '{"system": {"nodes": "x", "devices_per_node": 9}}', "[" * 100_000])
def test_devices_of_a_damaged_configuration_are_not_known(tmp_path: Path, config: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "config.json").write_text(config)
    ledger = read_ledger(folder)
    assert (ledger.devices, ledger.device_hours_lost) == (None, None)


def test_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected the folder of a run, with events\.jsonl or attempts in it"):
        read_ledger(tmp_path)


def test_times_are_utc() -> None:
    assert as_utc(START_MS + 999) == "2023-11-14 22:13:20Z"
