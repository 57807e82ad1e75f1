"""The status of runs whose every second is known: as figures, as a page, as a table, and as JSON."""

import errno
import json
import os
import time
from pathlib import Path

import pytest

from benchmark.run_record.file_names import EVENTS_FILE, attempt_path, lease_path
from benchmark.run_record.lease import Lease
from benchmark.run_record.small_files import write_object
from benchmark.run_record.status.run_status import RunStatus, as_utc, device_hours
from benchmark.run_record.status.status_reading import read_status
from benchmark.run_record.status.status_text import distinct_names, run_folders, status
from foundation.errors import InputError
from tests.benchmark.judging.report.runs import START_MS, MadeRun, write_run
from tests.benchmark.run_record.status.supervised_run import SupervisedRun, killed_and_hung, second_did_not_meet
from tests.house.json_schemas import assert_described


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
    killed, hung, last = ledger.attempts
    assert [row.kind for row in (killed, hung, last)] == ["killed", "hang", "finished"]
    assert (killed.where, killed.action) == ("rank 3 on n2 in passes", "again")
    assert (killed.steps, killed.steps_lost, killed.cost_ms) == (6, 2, 1_400 + 2_000 + 100 + 4_000 + 5_000)
    assert (hung.steps, hung.steps_lost, hung.cost_ms) == (3, 3, 1_500 + 36_000 + 100 + 4_000 + 5_000)
    assert (last.steps, last.steps_lost, last.cost_ms) == (4, 0, 0)
    assert (killed.begun_ms, killed.ended_ms) == (START_MS + 60_000, START_MS + 76_150)
    assert [row.failed for row in (killed, hung, last)] == [True, True, False]
    assert ledger.device_hours_lost == pytest.approx(4 * (12.5 + 46.6) / 3600)
    assert device_hours(3_600_000, None) is None


def test_page_table_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    run_dir = killed_and_hung(tmp_path / "run_1")
    status([run_dir], as_json=False, follow=True)  # it has ended: printed once
    text = capsys.readouterr().out
    for words in (
        "run_1: success, last heard of at 2023-11-14 22:15:3",
        "goodput 2.9% of 2 min 17 s, 5.2% without the queue: 3 attempts, 8 steps kept, 5 lost",
        "  hang             36.00 s   26.2%  from the last sign of life until the processes were ended",
        "0002     2023-11-14 22:15:22Z  hang          3     3  46.60 s  again: rank 2 on n2 hangs; starting",
        "                        again from step 4 on",
    ):
        assert words in text
    write_run(tmp_path / "run_0")
    (tmp_path / "dataset").mkdir()
    monkeypatch.setenv("COLUMNS", "80")
    for folder in (run_dir, tmp_path):
        status([folder], as_json=False, follow=False)
        lines = capsys.readouterr().out.splitlines()[1:]  # without the heading's path, which is not folded
        assert len(lines) >= 4 and max(map(len, lines)) <= 80
    monkeypatch.setenv("COLUMNS", "120")
    status([tmp_path], as_json=False, follow=False)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["run", "state", "step", "loss"]
    assert first.startswith("run_0 ") and "46.2%" in first
    assert second.startswith("run_1  success") and "2.9%" in second
    status([run_dir], as_json=True, follow=False)
    found = json.loads(capsys.readouterr().out)
    assert_described("status", found)
    assert sum(found["seconds"].values()) == pytest.approx(found["whole_s"])
    assert (found["state"], found["steps"], found["devices"]) == ("success", {"kept": 8, "lost": 5, "skipped": 0}, 4)
    assert [row["kind"] for row in found["attempts"]] == ["killed", "hang", "finished"]


def test_a_run_in_progress_tells_step_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = MadeRun(tmp_path / "run")
    run.begin()
    run.emit("step", mlperf=False, steps=4, trained_tokens=8192, loss=3.0, step_s=0.5, tokens_per_s=4096.0, mfu=0.4)
    now_s = run.now_ms / 1000 + 60
    monkeypatch.setattr("time.time", lambda: now_s)
    (run.folder / "attempts").mkdir(parents=True)
    write_object(lease_path(run.folder), Lease("token", "job 77", "n1", now_s, now_s, 120.0, "0001"))
    os.utime(lease_path(run.folder), (0, now_s))
    benchmark = {"train_samples": 1700, "global_batch_size": 16, "start_iterations": 50, "start_global_batch_size": 8}
    for steps, expected_s in ((81, None), (10, 90.0)):
        if expected_s is not None:
            run.emit("eta", mlperf=False, seconds=expected_s, target_tokens=20480)
        _without_end(run)
        (run.folder / "config.json").write_text(json.dumps({"benchmark": benchmark}))
        found = read_status(run.folder)
        assert (found.state, found.step, found.steps, found.loss, found.mfu) == ("running", 4, steps, 3.0, 0.4)
        assert found.expected_end_s == (None if expected_s is None else run.now_ms / 1000 + expected_s)


def _without_end(run: MadeRun) -> None:
    run.folder.mkdir(exist_ok=True)
    (run.folder / "events.jsonl").write_text("\n".join(run._events) + "\n")


def test_run_without_a_launcher_has_one_attempt(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "alone")
    whole = read_status(folder)
    assert seconds(whole) == {"init": 2.0, "productive": 6.0, "evaluation": 4.5, "checkpoint": 0.5}
    with (folder / "events.jsonl").open("a") as file:
        for time_ms in (0, -1, 10**30):  # no times
            file.write(json.dumps({"time_ms": time_ms, "key": "step", "trained_tokens": 1, "step_s": 1}) + "\n")
    assert read_status(folder).by_kind == whole.by_kind


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
    assert (running.attempts[0].kind, running.steps_kept, running.steps_lost) == ("unknown", 3, 0)
    assert running.remarks == ["2 steps are in no whole checkpoint yet: a restart would do them again"]
    run.incident("exception", "ValueError: no")
    run.ended(70, "stop", "the same error came twice")
    ended = read_status(run.folder)
    assert ended.state == "given up"
    assert (ended.attempts[0].kind, ended.steps_kept, ended.steps_lost) == ("exception", 1, 2)
    assert seconds(ended)["lost"] == 1.0
    assert ended.remarks == []


def test_skipped_steps_are_told_apart_and_a_clock_set_back_adds_no_time(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    run.begin()
    run.step()
    run.wait(0.5)
    run.emit("step", mlperf=False, trained_tokens=4096, step_s=0.5, skipped=True)
    run.wait(-3600)
    run.steps = 2
    run.step()
    ledger = read_status(run.end())
    assert (ledger.steps_kept, ledger.steps_lost, ledger.steps_skipped) == (2, 0, 1)
    assert seconds(ledger) == {"init": 2.0, "productive": 0.5, "lost": 0.5}


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


@pytest.mark.parametrize(
    ("status", "action", "job", "state"),
    [
        (75, "requeue", "77", "waiting"),
        (75, "requeue", None, "stopped"),  # without Slurm there is no queue
        (75, "stop", "77", "stopped"),
        (1, "stop", "77", "given up"),
        (1, "again", "77", "starting again"),
    ],
)
def test_the_state_after_an_attempt_says_what_comes_next(
    status: int, action: str, job: str | None, state: str, tmp_path: Path
) -> None:
    run = SupervisedRun(tmp_path / "run")
    run.launch(job=job)
    run.ended(status, action, "")
    assert read_status(run.end()).state == state


@pytest.mark.parametrize(
    ("renewed_s", "since_s", "heard_s", "ended", "state"),
    [
        (5, 900, 5, None, "running"),
        (5, 900, 2000, None, "silent"),  # held, but nothing comes
        (110, 900, 100, None, "running"),  # a remark says that its launcher may be gone
        (121, 900, 100, None, "silent"),  # its launcher is gone, and another one may take the run
        (None, 0, 5, None, "silent"),  # its last holder could not write that it ended
        (5, 900, 100, "again", "starting again"),
        (400, 900, 400, "again", "silent"),
        (5, 900, 100, "requeue", "waiting"),  # the launcher that decided so has not left yet
        (5, 20, 100, "requeue", "starting again"),  # the next job holds it
        (5, 20, 100, "stop", "starting again"),  # a person started it again
        (400, 900, 400, "stop", "given up"),
    ],
)
def test_a_lease_says_whether_somebody_looks_after_the_run(
    renewed_s: float | None,
    since_s: float,
    heard_s: float,
    ended: str | None,
    state: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Times are seconds ago."""
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.step()
    now_s = run.now_s + heard_s
    if ended is not None:
        run.ended(1, ended, "")
    run.end()
    if renewed_s is not None:
        lease = Lease("token", "job 77", "n1", now_s - since_s, now_s + 3600, 120.0, "0001")  # its clock jumped
        write_object(lease_path(run.folder), lease)
        os.utime(lease_path(run.folder), (0, now_s - renewed_s))
    os.utime(run.folder / EVENTS_FILE, (0, now_s - heard_s))
    monkeypatch.setattr("benchmark.run_record.status.status_reading.time.time", lambda: now_s)
    status_found = read_status(run.folder)
    assert status_found.state == state
    assert (status_found.attempts[0].kind == "running") == (state == "running")
    is_doubtful = any("job 77 on n1 was renewed 110 s ago" in remark for remark in status_found.remarks)
    assert is_doubtful == (renewed_s == 110)


def test_a_run_whose_processes_have_just_been_launched_is_starting(tmp_path: Path) -> None:
    run = SupervisedRun(tmp_path / "run")
    attempt_path(run.folder, "0001").mkdir(parents=True)
    assert read_status(run.folder).state == "silent"
    write_object(lease_path(run.folder), Lease("token", "job 77", "n1", time.time(), time.time(), 120.0, "0001"))
    assert read_status(run.folder).state == "starting"


def test_a_run_whose_next_holder_has_begun_no_attempt_is_starting(tmp_path: Path) -> None:
    """Nobody could write that the attempt before has ended."""
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.step()
    run.end()
    os.utime(run.folder / EVENTS_FILE)
    for attempt, state in (("0001", "running"), ("", "starting")):
        write_object(lease_path(run.folder), Lease("token", "job 77", "n1", time.time(), time.time(), 120.0, attempt))
        assert read_status(run.folder).state == state


def test_follow_ends_with_the_last_run_and_reads_an_ended_one_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, other = SupervisedRun(tmp_path / "1"), SupervisedRun(tmp_path / "2")
    for run in (ended, other):
        run.launch()
    ended.finish()
    other.ended(70, "again", "")
    other.end()
    reads = list[str]()

    def read(folder: Path) -> RunStatus:
        reads.append(folder.name)
        if len(reads) == 3:
            raise OSError(errno.EIO, "Input/output error", "events.jsonl")
        return read_status(folder)

    def sleep(_: float) -> None:
        if len(reads) == 4:
            other.finish()

    monkeypatch.setattr("benchmark.run_record.status.status_text.read_status", read)
    monkeypatch.setattr("benchmark.run_record.status.status_text.time.sleep", sleep)
    status([tmp_path], as_json=False, follow=True)
    assert reads == ["1", "2", "2", "2", "2"]
    captured = capsys.readouterr()
    assert captured.err == "events.jsonl: Input/output error; tried again\n"
    assert captured.out.count("starting again") == 2 and captured.out.count("success") == 4


@pytest.mark.parametrize("config", ["", "[1]", '{"system": {"nodes": "x", "devices_per_node": 9}}', "[" * 100_000])
def test_devices_of_a_damaged_configuration_are_not_known(tmp_path: Path, config: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "config.json").write_text(config)
    ledger = read_status(folder)
    assert (ledger.devices, ledger.device_hours_lost) == (None, None)


def test_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected the folder of a run, with events\.jsonl or attempts in it"):
        read_status(tmp_path)
    with pytest.raises(InputError, match="expected the folder of a run, or a folder of such folders"):
        run_folders([tmp_path])
    assert as_utc(START_MS + 999) == "2023-11-14 22:13:20Z"


def test_an_attempt_that_falls_back_to_an_older_checkpoint_is_one(tmp_path: Path) -> None:
    """It notes itself again, as its checkpoint was damaged. What it logs on its way out of a hang is the hang."""
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.emit("attempt", mlperf=False, attempt="0001")
    run.step()
    run.wait(30)
    run.incident("hang", "no sign of life for 30 s")
    run.emit("run_stop", kind="INTERVAL_END", status="aborted")
    run.ended(137, "stop", "given up")
    found = read_status(run.end())
    assert [row.name for row in found.attempts] == ["0001"]
    assert (seconds(found)["hang"], seconds(found)["lost"]) == (30.0, 0.5)  # the step is in no checkpoint


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


def test_attempt_that_has_only_its_folder_comes_last(tmp_path: Path) -> None:
    """It was made a moment ago, and no process has begun in it yet."""
    run = SupervisedRun(tmp_path)
    run.launch()
    attempt_path(tmp_path, "0002").mkdir(parents=True)
    run.end()
    assert [row.name for row in read_status(tmp_path).attempts] == ["0001", "0002"]


def test_runs_of_one_name_are_told_apart() -> None:
    folders = [Path("/a/first/log"), Path("/a/second/log"), Path("/b/second/log")]
    assert distinct_names(folders[:2]) == ["first/log", "second/log"]
    assert distinct_names(folders) == ["a/first/log", "a/second/log", "b/second/log"]
    assert distinct_names([Path("/runs/1"), Path("/runs/2")]) == ["1", "2"]
