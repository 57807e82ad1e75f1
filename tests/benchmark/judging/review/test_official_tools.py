"""Official tools count only when their output proves that they ran; their crashes and time-outs are told apart."""

import sys
from pathlib import Path

import pytest

from benchmark.judging.review import official_tools
from benchmark.judging.review.official_tools import MOST_COMPLAINTS, Task, ToolVerdict, run_task

SUCCESS = {"(?m)^INFO - SUCCESS$": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "outcome", "complaint"),
    [
        ("print('INFO - SUCCESS')", "passed", ""),
        ("print('all is well')", "failed", "the output has 0 of 1 lines with 'INFO - SUCCESS$'"),
        ("print('INFO - SUCCESS\\nINFO - SUCCESS')", "failed", "the output has 2 of 1 lines"),
        ("print('Skipping benchmark: gpt3\\nINFO - SUCCESS')", "failed", "the output has 'Skipping'"),
        ("print('INFO - SUCCESS'); raise SystemExit(1)", "failed", "exit status 1"),
        ("print('INFO - SUCCESS'); print(1 / 0)", "did not run", "ZeroDivisionError"),
        ("import time; time.sleep(60)", "did not run", "no answer within 3 s: it was ended"),
        ("while True: pass", "did not run", "it was ended by signal"),
        ("x = [b'x' * 1_000_000 for _ in range(4000)]", "did not run", "MemoryError"),
        ("import os, time; os.fork() or time.sleep(600); print('INFO - SUCCESS')", "passed", ""),
    ],
)
def test_proof(code: str, outcome: str, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"CPU_S_PER_LOG": 1, "MOST_MEMORY": 256 << 20, "WALL_S_PER_LOG": 0}
    for name, value in {**limits, "WALL_S": 3 if "sleep(60)" in code else 60}.items():
        monkeypatch.setattr(official_tools, name, value)
    check = run_task(Task("tool", "subject", ["-c", code], SUCCESS, ("Skipping",)))
    assert check.outcome == outcome
    assert any(complaint in line for line in check.complaints) or not complaint


def test_complaints_are_the_tools_lines_by_real_names() -> None:
    code = "print('INFO - checking'); [print(f'/scratch/a: wrong {n}') for n in range(20)]; raise SystemExit(1)"
    verdict = run_task(Task("tool", "subject", ["-c", code], {}, (), {"/scratch/a": "/real/b"}, ("a note",)))
    assert (verdict.tool, verdict.subject, verdict.outcome, verdict.notes) == ("tool", "subject", "failed", ("a note",))
    assert verdict.complaints[:2] == ("/real/b: wrong 0", "/real/b: wrong 1")
    assert len(verdict.complaints) == MOST_COMPLAINTS + 1
    assert verdict.complaints[-1] == "… and 8 more lines"


def test_scores_a_tool_wrote_are_proof_too() -> None:
    verdict = run_task(
        Task("tool", "subject", ["-c", "pass"], {}, scores=lambda: ({"a": {"minutes": 1.0}}, ["no row"]))
    )
    assert (verdict.outcome, verdict.complaints, verdict.scores) == ("failed", ("no row",), {"a": {"minutes": 1.0}})


def test_tools_run_in_an_empty_folder_that_is_never_imported_from(tmp_path: Path) -> None:
    code = "import os, sys; print(os.listdir()); print(os.getcwd() in sys.path or '' in sys.path); sys.exit(1)"
    assert run_task(Task("tool", "subject", ["-c", code], {})).complaints == ("[]", "False")


def test_verdict_passed() -> None:
    assert ToolVerdict("tool", sys.executable, "excused", ()).passed
    assert not ToolVerdict("tool", sys.executable, "did not run", ()).passed
