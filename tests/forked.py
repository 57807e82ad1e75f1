"""Processes for tests, forked from one that has imported everything already: importing takes longer than most tests."""

import contextlib
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOK_EVERY_S = 0.1
PRELOADED: tuple[str, ...] = (
    "tests.imports_begin",
    "benchmark.training.train",
    "benchmark.training.evaluate_checkpoint",
    "benchmark.judging.review.verdict",
    "benchmark.config.run_options",
    "benchmark.commands.command_table",
    "checkpoint_convert.commands.conversion_commands",
    "checkpoint_convert.commands.export_commands",
    "checkpoint_convert.commands.inspection_commands",
    "checksums.__main__",
    "data_prep.inspection.inspect_command",
    "data_prep.preparation.fetch",
    "data_prep.preparation.preparation_plan",
    "data_prep.preprocessing.preprocess",
    "data_prep.sample_order.samples",
    "torch._dynamo",  # PyTorch imports it when the first module is made
    "tests.benchmark.tiny",
    "tests.unsynced",
    "tests.set_aside",
)


def fork_server() -> Any:
    """The multiprocessing context whose processes begin with :data:`PRELOADED`; one server for each test process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def run_forked(
    function: Callable[..., None],
    arguments: list[str],
    *,
    folder: Path,
    timeout: float,
    look: Callable[[int], None] = lambda pid: None,
) -> "subprocess.CompletedProcess[str]":
    """Call ``function(arguments)`` as a program of its own: its exit status, and what it and its children print.

    ``folder`` is its working directory. Raises subprocess.TimeoutExpired after ``timeout`` seconds, and what ``look``
    raises, which is called with its id about ten times a second.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        handles = [multiprocessing.reduction.DupFd(file.fileno()) for file in (out, errors)]
        process = fork_server().Process(target=_program, args=(function, arguments, folder, dict(os.environ), handles))
        process.start()
        deadline = time.monotonic() + timeout
        try:
            while process.exitcode is None:
                process.join(min(LOOK_EVERY_S, max(0.0, deadline - time.monotonic())))
                if process.exitcode is None:
                    look(process.pid)
                    if time.monotonic() >= deadline:
                        raise subprocess.TimeoutExpired(arguments, timeout)
        finally:
            if process.exitcode is None:
                process.kill()
                process.join()
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
    return subprocess.CompletedProcess(arguments, process.exitcode, *texts)


def run_module(arguments: list[str]) -> None:
    """``python -m ARGUMENTS``"""
    sys.argv = arguments
    sys.modules.pop(f"{arguments[0]}.__main__", None)  # imported for what it imports; runpy warns of it
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _program(
    function: Callable[..., None], arguments: list[str], folder: Path, environment: dict[str, str], handles: list[Any]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for target, handle in zip((1, 2), handles, strict=True):
        os.dup2(handle.detach(), target)
    try:
        function(arguments)
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        raise
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
