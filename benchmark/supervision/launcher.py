"""Starting a run again until it has ended or cannot: on one machine, what run_gpt3.sh does under Slurm."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmark.supervision.attempt_folder import attempt_path, new_attempt
from benchmark.supervision.next_attempt import Decision, decide_and_note

Start = Callable[[Mapping[str, str], Path], int]
"""Start all processes of an attempt with these environment variables and wait for their end, their errors in this file:
the exit status."""
LAUNCHER_LOG = "launcher.log"
SHOWN_LINES = 20
PAUSES_S = (0.0, 1.0, 5.0, 20.0)
"""Before the next attempt, by how many attempts in a row got no further than the newest checkpoint: a disk or a network
that is away for a while must not use them all up."""


def keep_running(run_dir: Path, start: Start, saved_steps: Callable[[], int | None], *, launch: str) -> Decision:
    """Start attempts until there is nothing more to start; the last decision.

    ``saved_steps``: of the newest checkpoint. ``launch``: what all these attempts have in common. A person sees one
    line for each attempt that failed.
    """
    fruitless, saved = 0, saved_steps()
    while True:
        attempt = new_attempt(run_dir)
        log = attempt_path(run_dir, attempt) / LAUNCHER_LOG
        status = start({"ATTEMPT": attempt, "LAUNCH_ID": launch, "LAUNCHED_S": f"{time.time():.3f}"}, log)
        decision = decide_and_note(run_dir, status, saved_steps=saved_steps())
        if not decision.known and log.exists():
            _say(_what_matters(log.read_text(errors="replace").splitlines()))
        if decision.action == "stop":
            _say(f"error: {decision.reason}")
        elif decision.action != "done":
            _say(f"attempt {attempt}: {decision.reason}")
        if decision.action != "again":
            return decision
        fruitless, saved = 0 if saved_steps() != saved else fruitless + 1, saved_steps()
        time.sleep(PAUSES_S[min(max(0, fruitless - 1), len(PAUSES_S) - 1)])


def _what_matters(lines: Sequence[str]) -> str:
    """Of the errors of an attempt that nobody explained: the lines of bad input, each once; else the last ones."""
    refusals = dict.fromkeys(line for line in lines if line.startswith("error: "))
    return "\n".join(list(refusals or lines)[-SHOWN_LINES:])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
