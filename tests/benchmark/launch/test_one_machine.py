"""Several processes of one run on this machine: what is told when one fails, and what an order to stop does."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmark.launch.one_machine import OneMachine, remove_refused, run_here
from benchmark.run_record.attempt_folder import AttemptStart, all_attempts, read_ending, write_start
from foundation.errors import InputError
from tests.support import REPOSITORY, assert_refused, command


@pytest.mark.slow
def test_bad_input_is_one_line_ends_the_attempts_and_leaves_no_run_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    decision = run_here(tmp_path / "run", ["train", "rehearsal"], processes=1)
    captured = capfd.readouterr()
    assert captured.err == "error: --train-data-path is missing: one dataset prefix, or weights and prefixes in turn\n"
    assert captured.out == ""
    assert (decision.action, decision.status) == ("stop", 2)
    assert not (tmp_path / "run").exists()


def test_folder_of_a_run_that_began_is_not_removed(tmp_path: Path) -> None:
    for name in ("refused", "begun", "with a log"):
        (tmp_path / name / "attempts" / "0001").mkdir(parents=True)
    start = AttemptStart("0001", None, None, 1.0, 1.0, None, ("host",))
    write_start(tmp_path / "begun" / "attempts" / "0001", start)
    (tmp_path / "with a log" / "result_0.txt").touch()
    for name in ("refused", "begun", "with a log"):
        remove_refused(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "with a log"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--processes", "2", "--", "train", "rehearsal_llama", "--lr", "abc"), "--lr abc: expected a number"),
        (("--processes", "0", "--", "train"), "argument --processes: 0: expected a whole number from 1 on"),
        (("--processes", "2", "--port", "x", "--", "train"), "argument --port: x: expected a whole number from 1 on"),
        (("--", "train"), "the following arguments are required: --processes; see "),
    ],
)
def test_options_that_every_process_would_refuse_are_one_line_and_make_no_folder(
    words: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    assert_refused(command("benchmark.launch", "--run-dir", str(tmp_path / "0"), *words), complaint)
    assert not (tmp_path / "0").exists()


def test_folder_that_cannot_be_made_is_one_line() -> None:
    train = ("train", "rehearsal", "--train-data-path", "x", "--valid-data-path", "x")
    done = command("benchmark.launch", "--run-dir", "/dev/null", "--processes", "2", "--", *train)
    assert_refused(done, "/dev/null: ", "choose another folder for the run")


def test_busy_port_is_refused_before_anything_starts() -> None:
    with socket.socket() as busy:
        busy.bind(("", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: Address already in use; choose another MASTER_PORT"):
            OneMachine(["benchmark"], processes=2, port=port)


def test_finished_run_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "success"}')
    with pytest.raises(InputError, match="holds a finished run"):
        run_here(tmp_path, ["train"], processes=2)


PROCESSES = """
import os, pathlib, sys, time
for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "ATTEMPT", "LAUNCH_ID"):
    os.write(1, f"{name} {os.environ[name]}\\n".encode())
printed = pathlib.Path("printed")
if os.environ["RANK"] == "1":
    while not printed.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
printed.touch()
time.sleep(600 if sys.argv[1:] == ["stay"] else 0)
"""


@pytest.mark.parametrize("words", [[], ["stay"]])
def test_first_failure_is_the_status_and_ends_the_others(
    words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmark.launch.one_machine.TO_FOLLOW_S", 0.5)
    monkeypatch.setattr("benchmark.launch.one_machine.REPOSITORY", tmp_path)
    monkeypatch.chdir(tmp_path)  # processes start in the folder of the caller
    (tmp_path / "practice.py").write_text(PROCESSES)
    place = OneMachine(["practice", *words], processes=2)
    assert place.start("0007", tmp_path / "log") == 137
    lines = capfd.readouterr().out.splitlines()
    assert {"RANK 0", "RANK 1", "WORLD_SIZE 2", "MASTER_ADDR localhost", "ATTEMPT 0007"} <= set(lines)
    assert f"LAUNCH_ID process {os.getpid()}" in lines


SAVING = """
import json, os, pathlib, signal, sys, time
run = pathlib.Path(sys.argv[-1])
def save(*_):
    (run / "stopped.json").write_text(json.dumps({"by": "signal SIGTERM", "steps": 3, "saved": True}))
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
(run / f"ready{os.environ['RANK']}").touch()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGHUP, 75, "a closed terminal"), (signal.SIGTERM, 75, "SIGTERM")],
)
def test_what_ends_the_launcher_has_the_run_saved(number: int, status: int, said: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "__main__.py").write_text(SAVING)
    start = (
        "import sys, pathlib, signal; import benchmark.launch.one_machine as here;"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL);"  # ignored where the tests run under nohup
        "here.REPOSITORY = pathlib.Path(sys.argv[1]);"
        "sys.exit(here.run_here(pathlib.Path(sys.argv[2]), ['train'], processes=2).status)"
    )
    words = [sys.executable, "-c", start, str(tmp_path), str(run)]
    launcher = subprocess.Popen(words, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(list(run.glob("ready*"))) < 2:
        assert time.monotonic() < deadline and launcher.poll() is None
        time.sleep(0.05)
    launcher.send_signal(number)
    _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == status, errors
    assert errors.splitlines() == [
        f"{said}: the run is saved and stopped",
        f"attempt 0001: saved and stopped: {said}",
    ]
    end = read_ending(all_attempts(run)[-1])
    assert end is not None and (end.action, end.status) == ("requeue", 75)


def test_run_under_nohup_outlives_its_terminal() -> None:
    machines = OneMachine(["benchmark"], processes=1)
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with machines.taking_orders():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) == machines._order
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, earlier)
