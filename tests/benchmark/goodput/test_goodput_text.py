"""The command, as people and scripts see it."""

import json
from pathlib import Path

import pytest

from benchmark.goodput.goodput_text import format_ledger, goodput
from benchmark.goodput.ledger import read_ledger
from tests.benchmark.goodput.supervised_run import SupervisedRun, ended_by_devices, killed_and_hung
from tests.benchmark.report.runs import write_run
from tests.support import assert_refused, command

TABLE = """\
goodput 2.9% of 137.3 s, 5.2% without the queue: 3 attempts, 8 steps kept, 5 lost; 0.0657 device hours lost on 4 devices

  time                       share
  queue            60.00 s   43.7%  a job was submitted, and nothing was launched yet
  start            12.00 s    8.7%  from the launch until the run's folder is open: processes, imports
"""
ROWS = """\
  attempt  ended                 how               steps   lost       cost  decided
  0001     2023-11-14 22:14:36Z  killed                6      2    12.50 s  again
           rank 3 on n2 after step 6, in passes: killed; starting again from step 4 on
  0002     2023-11-14 22:15:22Z  hang                  3      3    46.60 s  again
           rank 2 on n2 hangs; starting again from step 4 on
  0003     2023-11-14 22:15:37Z  finished              4      0          -  done
           the run has ended: success"""


def test_table(tmp_path: Path) -> None:
    shown = goodput(killed_and_hung(tmp_path / "run"), as_json=False)
    assert shown.startswith(TABLE)
    assert "  whole            137.3 s  100.0%\n" in shown
    assert shown.endswith(ROWS)


def test_json_adds_up(tmp_path: Path) -> None:
    done = command("benchmark", "goodput", killed_and_hung(tmp_path / "run"), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["whole_s"] == 137.35
    assert sum(told["seconds"].values()) == pytest.approx(137.35)
    assert told["goodput"] == pytest.approx(4 / 137.35)
    assert told["steps"] == {"kept": 8, "lost": 5, "skipped": 0}
    first = told["attempts"][0]
    assert {name: first[name] for name in ("attempt", "kind", "rank", "host", "phase", "message", "action")} == {
        "attempt": "0001",
        "kind": "killed",
        "rank": 3,
        "host": "n2",
        "phase": "passes",
        "message": "gone without a word",
        "action": "again",
    }
    assert (first["steps_lost"], first["lost_s"], first["queue_after_s"]) == (2, 12.5, 0.0)
    assert told["device_hours_lost"] == pytest.approx(sum(row["device_hours_lost"] for row in told["attempts"]))
    assert told["expected"] is None


def test_rate_of_failures_and_remarks_are_sentences(tmp_path: Path) -> None:
    run = ended_by_devices(tmp_path / "run", save_steps=1)
    run.step()
    shown = format_ledger(read_ledger(run.end()))
    assert "  expected at this failure rate: " in shown
    assert "(3 failures, one every 15.17 s; restarts of 9.00 s, a checkpoint every step of 0.50 s)" in shown
    assert shown.endswith("\n  1 step is in no whole checkpoint yet: a restart would do it again")
    assert "\n           rank 3 on n2 in passes: device: Xid 79\n" in shown


def test_strangers_texts_reach_no_terminal(tmp_path: Path) -> None:
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.incident("exception", "\x1b[2Jgone\u202e" + "x" * 1000)
    run.ended(70, "\x1b[31magain", "\x07said \x1b]0;title\x07")
    shown = format_ledger(read_ledger(run.end()))
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert max(map(len, shown.splitlines())) < 250


def test_run_without_attempts_has_no_word_of_them(tmp_path: Path) -> None:
    shown = goodput(write_run(tmp_path / "run"), as_json=False)
    assert shown.startswith("goodput 46.2% of 13.00 s: 1 attempt, 12 steps kept, 0 lost\n")
    assert shown.endswith("  1        2023-11-14 22:13:33Z  finished             12      0          -")


def test_no_run_is_one_line(tmp_path: Path) -> None:
    assert_refused(command("benchmark", "goodput", tmp_path), "expected the folder of a run")
