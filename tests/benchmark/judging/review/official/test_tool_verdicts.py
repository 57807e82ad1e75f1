"""Official tools count only when their output proves that they ran; their crashes and time-outs are told apart."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from benchmark.judging.review.official import tool_process as processes
from benchmark.judging.review.official.subject_copies import SubjectCopies
from benchmark.judging.review.official.tool_process import ToolProcess, tool_process
from benchmark.judging.review.official.tool_verdicts import (
    MOST_COMPLAINTS,
    OfficialTool,
    Task,
    ToolVerdict,
    run_task,
)

SUCCESS = {"(?m)^INFO - SUCCESS$": 1}


@pytest.fixture
def tools() -> Iterator[ToolProcess]:
    with tool_process() as started:
        yield started


def task_of(code: str, tools: ToolProcess, **fields: Any) -> Task:
    """Return a task whose tool is a script with this code."""
    copies = SubjectCopies(tools.scratch / "copies", fields.pop("renamed", {}))
    copies.folder.mkdir()
    script = tools.scratch / "copies" / "script.py"
    script.write_text(code)
    return Task(OfficialTool("tool", str(script), "json"), "subject", [], copies, fields.pop("must", {}), **fields)


@pytest.mark.parametrize(
    ("code", "outcome", "complaint"),
    [
        ("print('INFO - SUCCESS')", "passed", ""),
        ("print('all is well')", "failed", "the output has 0 of 1 lines with 'INFO - SUCCESS$'"),
        ("print('INFO - SUCCESS\\nINFO - SUCCESS')", "failed", "the output has 2 of 1 lines"),
        ("print('Skipping benchmark: gpt3\\nINFO - SUCCESS')", "failed", "the output has 'Skipping'"),
        ("print('INFO - SUCCESS'); raise SystemExit(1)", "failed", "exit status 1"),
        ("print('INFO - SUCCESS'); print(1 / 0)", "did not run", "ZeroDivisionError"),
        (
            "import traceback\ntry:\n 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()\nprint('Scores:')",
            "did not run",
            "the tool crashed: ZeroDivisionError",
        ),
        (
            "print('ERROR - RCP Test Failed: RCP found')",
            "failed",
            "RCP Test Failed: the runs fail the test, or are not as",
        ),
        ("import time; time.sleep(60)", "did not run", "no answer within 1 s: it was ended"),
        ("while True: pass", "did not run", "it was ended by signal"),
        ("x = [b'x' * 1_000_000 for _ in range(4000)]", "did not run", "MemoryError"),
    ],
)
def test_proof(code: str, outcome: str, complaint: str, monkeypatch: pytest.MonkeyPatch, tools: ToolProcess) -> None:
    limits = {"while True: pass": {"CPU_S_PER_LOG": 1}, "import time; time.sleep(60)": {"WALL_S": 1}}
    for name, value in {"MOST_MEMORY": 256 << 20, "WALL_S_PER_LOG": 0, **limits.get(code, {})}.items():
        monkeypatch.setattr(processes, name, value)
    check = run_task(task_of(code, tools, must=SUCCESS, must_not=("Skipping",)), tools)
    assert check.outcome == outcome
    assert any(complaint in line for line in check.complaints) or not complaint


def test_complaints_are_the_tools_lines_by_original_paths(tools: ToolProcess) -> None:
    code = "import os; print('INFO - checking'); [print(f'{os.getcwd()}/a: wrong {n}') for n in range(20)]; exit(1)"
    verdict = run_task(task_of(code, tools, renamed={"a": "/real/b"}, notes=("a note",)), tools)
    assert (verdict.tool, verdict.subject, verdict.outcome, verdict.notes) == ("tool", "subject", "failed", ("a note",))
    assert verdict.complaints[:2] == ("/real/b: wrong 0", "/real/b: wrong 1")
    assert len(verdict.complaints) == MOST_COMPLAINTS + 1
    assert verdict.complaints[-1] == "… and 8 more lines"


def test_scores_a_tool_wrote_are_proof_too(tools: ToolProcess) -> None:
    code = "open('table', 'w').write('7')"
    task = task_of(code, tools, table="table", scores=lambda table: ({"a": {"minutes": float(table)}}, ["no row"]))
    verdict = run_task(task, tools)
    assert (verdict.outcome, verdict.complaints, verdict.scores) == ("failed", ("no row",), {"a": {"minutes": 7.0}})


def test_a_refused_copy_is_given_to_no_tool(tools: ToolProcess) -> None:
    task = task_of("open('ran', 'w')", tools)
    task.copies.refusals["a"] = "/real/b:7: a reason"
    verdict = run_task(task, tools)
    assert (verdict.outcome, verdict.complaints) == ("did not run", ("not run, because /real/b:7: a reason",))
    assert not (task.copies.folder / "ran").exists()


def test_verdict_passed() -> None:
    assert ToolVerdict("tool", sys.executable, "excused", ()).passed
    assert not ToolVerdict("tool", sys.executable, "did not run", ()).passed
