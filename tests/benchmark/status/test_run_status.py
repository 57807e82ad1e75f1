"""The status of runs whose every second is known."""

import json
from pathlib import Path

import pytest

from benchmark.status.run_status import RunStatus, as_utc, device_hours, read_status
from stage.errors import InputError
from tests.benchmark.report.runs import START_MS, MadeRun, write_run
from tests.benchmark.status.supervised_run import SupervisedRun, killed_and_hung, second_did_not_meet


def seconds(ledger: RunStatus) -> dict[str, float]:
    return {kind: ms / 1000 for kind, ms in ledger.by_kind.items() if ms}


def test_every_second_of_a_run_of_three_attempts(tmp_path: Path) -> None:
    ledger = read_status(killed_and_hung(tmp_path / "run"))
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
    assert (ledger.devices, ledger.remarks, ledger.state) == (4, [], "success")


def test_every_attempt_has_its_cause_and_its_cost(tmp_path: Path) -> None:
    killed, hung, last = read_status(killed_and_hung(tmp_path / "run")).attempts
    assert [row.kind for row in (killed, hung, last)] == ["killed", "hang", "finished"]
    assert (killed.where, killed.action) == ("rank 3 on n2 in passes", "again")
    assert (killed.steps, killed.steps_lost, killed.cost_ms) == (6, 2, 1_400 + 2_000 + 100 + 4_000 + 5_000)
    assert (hung.steps, hung.steps_lost, hung.cost_ms) == (3, 3, 1_500 + 36_000 + 100 + 4_000 + 5_000)
    assert (last.steps, last.steps_lost, last.cost_ms) == (4, 0, 0)
    assert (killed.begun_ms, killed.ended_ms) == (START_MS + 60_000, START_MS + 76_150)
    assert [row.failed for row in (killed, hung, last)] == [True, True, False]


def test_device_hours_are_those_that_stood_still(tmp_path: Path) -> None:
    ledger = read_status(killed_and_hung(tmp_path / "run"))
    assert ledger.device_hours_lost == pytest.approx(4 * (12.5 + 46.6) / 3600)
    assert device_hours(3_600_000, None) is None


def test_run_without_a_launcher_has_one_attempt(tmp_path: Path) -> None:
    alone = read_status(write_run(tmp_path / "alone"))
    assert seconds(alone) == {"init": 2.0, "productive": 6.0, "evaluation": 4.5, "checkpoint": 0.5}


def test_steps_left_nowhere_are_lost_once_the_attempt_has_ended(tmp_path: Path) -> None:
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.step()
    run.save()
    run.written()
    run.step()
    run.step()
    running = read_status(run.end())
    assert running.state == "silent"  # its events are of 2023
    assert (running.attempts[0].kind, running.steps_kept, running.steps_lost) == ("running", 3, 0)
    assert running.remarks == ["2 steps are in no whole checkpoint yet: a restart would do them again"]
    run.incident("exception", "ValueError: no")
    run.ended(70, "stop", "the same error came twice")
    ended = read_status(run.folder)
    assert ended.state == "given up"
    assert (ended.attempts[0].kind, ended.steps_kept, ended.steps_lost) == ("exception", 1, 2)
    assert seconds(ended)["lost"] == 1.0
    assert ended.remarks == []


def test_skipped_steps_are_told_apart(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    run.begin()
    run.step()
    run.wait(0.5)
    run.emit("step", mlperf=False, trained_tokens=4096, step_s=0.5, skipped=True)
    ledger = read_status(run.end())
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
    ledger = read_status(run.finish())
    assert [(row.kind, row.failed) for row in ledger.attempts] == [("interrupted", False), ("finished", False)]
    assert (ledger.attempts[0].cost_ms, ledger.by_kind["queue"]) == (2_000 + 9_000, 100_000)
    assert seconds(ledger)["stop"] == 4.0
    assert ledger.steps_lost == 0


def test_clock_that_went_back_is_named(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    run.begin()
    run.step()
    run.wait(-3600)
    run.step()
    run.step()
    ledger = read_status(run.end())
    assert seconds(ledger) == {"init": 2.0, "productive": 1.0}
    assert ledger.steps_kept == 3
    (remark,) = ledger.remarks
    assert remark.startswith("the clock went back by 3,599.500 s at 2023-11-14 21:13:23Z: no time is counted there")


def test_events_of_no_time_are_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    whole = read_status(folder)
    with (folder / "events.jsonl").open("a") as file:
        for time_ms in (0, -1, 10**30):
            file.write(json.dumps({"time_ms": time_ms, "key": "step", "trained_tokens": 1, "step_s": 1}) + "\n")
    assert read_status(folder).by_kind == whole.by_kind


@pytest.mark.parametrize("config", ["", "[1]", '{"system": {"nodes": "x", "devices_per_node": 9}}', "[" * 100_000])
def test_devices_of_a_damaged_configuration_are_not_known(tmp_path: Path, config: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "config.json").write_text(config)
    ledger = read_status(folder)
    assert (ledger.devices, ledger.device_hours_lost) == (None, None)


def test_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected the folder of a run, with events\.jsonl or attempts in it"):
        read_status(tmp_path)


def test_times_are_utc() -> None:
    assert as_utc(START_MS + 999) == "2023-11-14 22:13:20Z"


def test_an_attempt_that_falls_back_to_an_older_checkpoint_is_one(tmp_path: Path) -> None:
    """It notes itself again, as its checkpoint was damaged."""
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.step()
    run.emit("attempt", mlperf=False, attempt="0001")
    run.step()
    assert [row.name for row in read_status(run.end()).attempts] == ["0001"]


def test_what_a_hung_process_logs_on_its_way_out_is_the_hang(tmp_path: Path) -> None:
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.step()
    run.wait(30)
    run.incident("hang", "no sign of life for 30 s")
    run.emit("run_stop", kind="INTERVAL_END", status="aborted")
    run.ended(137, "stop", "given up")
    found = seconds(read_status(run.end()))
    assert (found["hang"], found["lost"]) == (30.0, 0.5)  # the step is in no checkpoint


@pytest.mark.parametrize("opened_log", [True, False])
def test_attempt_whose_processes_never_met_has_a_row(tmp_path: Path, opened_log: bool) -> None:
    ledger = read_status(second_did_not_meet(tmp_path / "run", opened_log=opened_log))
    assert [row.kind for row in ledger.attempts] == ["failed", "meeting", "finished"]
    assert sum(ledger.by_kind.values()) == ledger.whole_ms


def test_wrong_clock_of_another_machine_takes_nothing_from_the_next_attempt(tmp_path: Path) -> None:
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.step()
    far_s, run.now_ms = run.now_ms, run.now_ms + 900_000
    run.ended(70, "again", "")
    run.now_ms = far_s + 4_000
    run.launch()
    run.step()
    assert seconds(read_status(run.finish()))["productive"] == 0.5
