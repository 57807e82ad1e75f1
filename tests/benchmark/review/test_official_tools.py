"""Official tools count only when their output proves that they ran; their crashes and time-outs are told apart."""

import sys
from pathlib import Path

import pytest

from benchmark.review.official_tools import MOST_COMPLAINTS, Limits, Proof, Task, ToolVerdict, run_task

SUCCESS = {"(?m)^INFO - SUCCESS$": 1}


def tool(code: str, **proof: object) -> Task:
    return Task("tool", "subject", ["-c", code], Proof(SUCCESS, ("Skipping",)), {})


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
        ("import time; time.sleep(60)", "did not run", "no answer within 1 s: it was ended"),
        ("while True: pass", "did not run", "it took more than 1 s of a processor, or was killed: it was ended"),
        ("x = [b'x' * 1_000_000 for _ in range(4000)]", "did not run", "it wanted more than 256 MiB of memory"),
        ("while True: print('x' * 1_000_000)", "did not run", "it wrote more than 32 MiB: it was ended"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "did not run", "it was ended by signal 11"),
        ("import os, time; os.fork() or time.sleep(600); print('INFO - SUCCESS')", "passed", ""),
        ("print('INFO - SUCCESS'); print('x' * 20_000_000)", "passed", ""),
    ],
)
def test_proof(code: str, outcome: str, complaint: str) -> None:
    check = run_task(
        tool(code), Limits(1 if "sleep(60)" in code else 60, 1 if "pass" in code else 60, 256 << 20, 32 << 20)
    )
    assert check.outcome == outcome
    assert any(complaint in line for line in check.complaints) or not complaint


def test_complaints_are_the_tools_lines_by_real_names() -> None:
    code = "print('INFO - checking'); [print(f'/scratch/a: wrong {n}') for n in range(20)]; raise SystemExit(1)"
    task = Task("tool", "subject", ["-c", code], Proof(), {"/scratch/a": "/real/b"}, ("a note",))
    verdict = run_task(task)
    assert (verdict.tool, verdict.subject, verdict.outcome, verdict.notes) == ("tool", "subject", "failed", ("a note",))
    assert verdict.complaints[:2] == ("/real/b: wrong 0", "/real/b: wrong 1")
    assert len(verdict.complaints) == MOST_COMPLAINTS + 1
    assert verdict.complaints[-1] == "… and 8 more lines"


def test_files_a_tool_wrote_are_proof_too() -> None:
    task = Task("tool", "subject", ["-c", "pass"], Proof(), {}, afterwards=lambda: ["no row"])
    assert run_task(task).complaints == ("no row",)


def test_tools_run_in_an_empty_folder_that_is_never_imported_from(tmp_path: Path) -> None:
    code = "import os, sys; print(os.listdir()); print(os.getcwd() in sys.path or '' in sys.path); sys.exit(1)"
    assert run_task(Task("tool", "subject", ["-c", code], Proof(), {})).complaints == ("[]", "False")


def test_verdict_passed() -> None:
    assert ToolVerdict("tool", sys.executable, "passed", (), (), 0.1).passed
    assert not ToolVerdict("tool", sys.executable, "did not run", (), (), 0.1).passed
