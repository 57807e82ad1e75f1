"""The process of the official tools: its environment, its limits, and its end with the review, however that ends."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmark.judging.review.official import tool_process as processes
from benchmark.judging.review.official.tool_process import ServerEndedError, ToolProcess, tool_process
from benchmark.judging.review.official.tool_sandbox import ARCHITECTURES, REFUSED_CALLS, call_filter

SLEEPER = """
import signal
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with the signal ignored
from benchmark.judging.review.official.tool_process import tool_process
with tool_process() as tools:
    folder = tools.scratch / "copies"
    folder.mkdir()
    script = folder / "script.py"
    script.write_text("import os, time; open('started', 'w').write(str(os.getpid())); time.sleep(600)")
    print(tools.scratch, flush=True)
    tools.run(str(script), "json", (), folder, 1)
"""
PATIENCE_S = 60.0


def run_script(code: str, tools: ToolProcess) -> processes.ToolRun:
    folder = tools.scratch / "copies"
    folder.mkdir(exist_ok=True)
    script = folder / "script.py"
    script.write_text(code)
    return tools.run(str(script), "json", (), folder, 1)


def wait_for(condition: object, what: str) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < limit, what
        time.sleep(0.02)


def is_running(process: int) -> bool:
    try:
        return re.search(r"(?m)^State:\s+[^Z]", Path(f"/proc/{process}/status").read_text()) is not None
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_review_leaves_no_folder_and_no_process(number: int) -> None:
    review = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert review.stdout is not None
    scratch = Path(review.stdout.readline().strip())
    started = scratch / "copies" / "started"
    wait_for(lambda: started.exists() and started.read_text(), "the tool has not started")
    tool = int(started.read_text())
    server = int(re.findall(r"(?m)^PPid:\s+(\d+)", Path(f"/proc/{tool}/status").read_text())[0])
    assert is_running(tool) and is_running(server) and server != review.pid
    review.send_signal(number)
    assert review.wait(PATIENCE_S) != 0
    review.stdout.close()
    wait_for(lambda: not scratch.exists(), "the folder is still there")
    wait_for(lambda: not is_running(tool) and not is_running(server), "a process is still there")


def test_tools_get_no_variables_home_or_input_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SECRET_TOKEN", "PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD"):
        monkeypatch.setenv(name, "/nowhere")
    code = "import json, os, sys; print(json.dumps([dict(os.environ), os.listdir(), sys.stdin.read(), sys.path]))"
    with tool_process() as tools:
        environment, names, text, path = json.loads(run_script(code, tools).output)
        scratch = str(tools.scratch)
    assert {*environment} <= {"HOME", "TMPDIR", "LC_CTYPE", *processes.ONE_THREAD, *processes.HANDED_ON}
    assert environment["HOME"] == environment["TMPDIR"] == scratch
    assert (names, text) == (["script.py"], "")
    assert all(Path(folder).is_absolute() for folder in path) and str(Path.home()) not in path


def test_limits_and_exit_statuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_OUTPUT", 1 << 20)
    with tool_process() as tools:
        assert run_script("raise SystemExit", tools).status == 0
        assert run_script("raise SystemExit(3)", tools).status == 3
        words = run_script("raise SystemExit('a reason')", tools)
        assert (words.status, words.output) == (1, "a reason\n")
        assert run_script("import os; os.abort()", tools).status == -signal.SIGABRT
        long = run_script("open('file', 'w').write('x' * (2 << 20))", tools)
        assert long.status == 1 and "File too large" in long.output
        assert (tools.scratch / "copies" / "file").stat().st_size == 1 << 20


def test_a_tool_that_ends_its_server_is_an_error_of_its_own() -> None:
    with tool_process() as tools:
        run_script("pass", tools)
        assert tools._process is not None
        tools._process.kill()
        tools._process.wait()
        with pytest.raises(ServerEndedError):
            run_script("pass", tools)
    assert not tools.scratch.exists()


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_filter_of_system_calls(machine: str) -> None:
    """Interpret the filter: it kills another architecture's call, refuses the listed ones, and lets the others pass."""

    def answer(number: int, flags: int = 0, architecture: int = ARCHITECTURES[machine]) -> int:
        words, steps, place, loaded = {0: number, 4: architecture, 16: flags}, call_filter(machine), 0, 0
        while True:
            code, if_true, if_false, operand = steps[place]
            place += 1
            if code == 0x06:
                return operand
            if code == 0x20:
                loaded = words[operand]
            else:
                holds = {0x15: loaded == operand, 0x35: loaded >= operand, 0x45: bool(loaded & operand)}[code]
                place += if_true if holds else if_false

    allowed, refused, unknown = 0x7FFF0000, 0x00050001, 0x00050026
    clone = {"x86_64": 56, "aarch64": 220}[machine]
    assert {answer(number) for number in REFUSED_CALLS[machine].values()} == {refused}
    assert (answer(clone), answer(clone, 0x10000), answer(435)) == (refused, allowed, unknown)
    assert answer(0) == allowed and answer(0, architecture=3) == 0x80000000
    assert call_filter("unknown") == []
