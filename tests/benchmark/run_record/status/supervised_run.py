"""Runs of several attempts whose every millisecond is known."""

import json
import os
from pathlib import Path

from benchmark.run_record.attempt_folder import AttemptEnding, AttemptStart, write_ending, write_start
from benchmark.run_record.file_names import attempt_path
from benchmark.run_record.incidents import Incident, IncidentKind, write_incident
from tests.benchmark.judging.report.runs import TOKENS_PER_STEP, MadeRun

HOSTS = ("n1", "n1", "n2", "n2")


class SupervisedRun(MadeRun):
    """A made run with a launcher: what attempts leave in their folders, by the clock of its events."""

    number = 0

    @property
    def now_s(self) -> float:
        return self.now_ms / 1000

    @property
    def attempt(self) -> str:
        return f"{self.number:04d}"

    def launch(
        self,
        *,
        resumed_at: int | None = None,
        job: str | None = "77",
        submitted_s: float | None = None,
        imports_s: float = 3.0,
        init_s: float = 5.0,
    ) -> None:
        """Start all processes: a second until they run, ``imports_s`` until the log is open, ``init_s`` until ready."""
        self.number += 1
        launched_s = self.now_s
        self.wait(1.0)
        started_s = self.now_s
        self.wait(imports_s)
        fields = AttemptStart(self.attempt, job, submitted_s, launched_s, started_s, resumed_at, HOSTS)
        write_start(attempt_path(self.folder, self.attempt), fields)
        self.emit("attempt", mlperf=False, **{**vars(fields), "hosts": list(HOSTS)})
        self.emit("environment", {"torch": "2.13"}, mlperf=False)
        if resumed_at is None:
            self.emit("init_start", kind="INTERVAL_START")
        self.wait(init_s)
        self.emit("ready", mlperf=False)
        self.steps = resumed_at or 0
        if resumed_at is None:
            self.emit("init_stop", kind="INTERVAL_END")
            self.emit("run_start", kind="INTERVAL_START")
        else:
            self.emit("restart", self.number - 1, step=resumed_at * TOKENS_PER_STEP)

    def written(self, *, after_s: float = 0.0) -> None:
        """The last checkpoint is whole."""
        self.wait(after_s)
        self.emit("checkpoint_written", mlperf=False, steps=self.steps, seconds=2.0, bytes=9)

    def incident(self, kind: IncidentKind, message: str, *, rank: int = 3, phase: str = "passes") -> None:
        found = Incident(self.now_s, rank, HOSTS[rank], 4711, kind, self.steps, phase, message)
        write_incident(attempt_path(self.folder, self.attempt), found)

    def ended(self, status: int, action: str, reason: str) -> None:
        folder = attempt_path(self.folder, self.attempt)
        write_ending(folder, AttemptEnding(self.now_s, status, action, reason))
        os.utime(folder, (self.now_s, self.now_s))  # tells the place of an attempt that never began

    def finish(self) -> Path:
        """The run ends by itself, and the launcher sees it."""
        self.emit("run_stop", kind="INTERVAL_END", status="success")
        self.wait(1.5)
        self.emit("message", "success after many tokens", mlperf=False)
        self.wait(0.5)
        self.ended(0, "done", "the run has ended: success")
        self.end()
        (self.folder / "summary.json").write_text(json.dumps({"status": "success"}))
        return self.folder

    def end(self) -> Path:
        """Write the files, without a run_stop of its own."""
        emit, self.emit = self.emit, lambda *_, **__: None  # type: ignore[method-assign]
        folder = super().end()
        self.emit = emit  # type: ignore[method-assign]
        return folder


def killed_and_hung(folder: Path) -> Path:
    """A run of three attempts: the first is queued for a minute, and a rank is killed in its step 7; the second goes on
    from step 4, and hangs in step 8; the third from step 4 again, to step 8 and the end.

    In seconds: queue 60, start 3 x 4, init 3 x 5; steps of half a second, evaluations of 1.5, checkpoints of 0.25.
    """
    run = SupervisedRun(folder)
    submitted_s = run.now_s
    run.wait(60)
    run.launch(submitted_s=submitted_s)
    for _ in range(4):
        run.step()
    run.evaluate(5.5)
    run.save()
    run.step()
    run.written()
    run.step()
    run.wait(0.4)
    run.incident("killed", "gone without a word")
    run.incident("lost connection", "peer closed", rank=0)
    run.wait(2.0)
    run.ended(70, "again", "rank 3 on n2 after step 6, in passes: killed; starting again from step 4 on")
    run.wait(0.1)
    run.launch(resumed_at=4, submitted_s=submitted_s)
    for _ in range(3):
        run.step()
    run.wait(30)
    run.incident("hang", "no sign of life for 30 s", rank=2)
    run.wait(6)
    run.ended(70, "again", "rank 2 on n2 hangs; starting again from step 4 on")
    run.wait(0.1)
    run.launch(resumed_at=4, submitted_s=submitted_s)
    for _ in range(4):
        run.step()
    run.evaluate(2.43)
    return run.finish()


def second_did_not_meet(folder: Path, *, opened_log: bool) -> Path:
    """A run of three attempts: the processes of the second never met, whether rank 0 had opened the log or not."""
    run = SupervisedRun(folder)
    run.launch()
    run.step()
    run.ended(70, "again", "")
    run.wait(5)
    run.number += 1
    if opened_log:
        run.emit("message", "rehearsal in BF16", mlperf=False)
        run.wait(5)
    run.incident("meeting", "not reachable")
    run.ended(2, "again", "the processes did not meet")
    run.wait(5)
    run.launch()
    run.step()
    return run.finish()
