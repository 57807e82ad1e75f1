"""``benchmark preflight --first-contact``: its parts, one after the other, each with a time of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from benchmark.slice_run.device_facts import DeviceFacts, device_facts
from benchmark.slice_run.first_contact import contention
from benchmark.slice_run.first_contact.contact_result import ContactResult, Outcome, PartResult
from benchmark.slice_run.first_contact.feature_table import FEATURES, last_line, try_feature
from stage.errors import InputError
from stage.git import REPOSITORY

SMALL = ("--device", "cpu", "--hidden-size", "512", "--seq-length", "128", "--layers", "1", "--micro-batches", "2")
"""Of a slice on a CPU: whether it runs."""
LEAST_S = 20.0
"""A part that would have less time than this is left out."""


@dataclass(frozen=True)
class CommandPart:
    """A part that is a command of its own."""

    name: str
    arguments: tuple[str, ...]
    """After ``python -m``."""
    limit_s: float
    result: str
    """File in the output folder that it leaves, JSON; what it prints where that is empty."""
    tell: Callable[[Any], str]
    """From the result, in a line."""


def first_contact(device: Literal["cuda", "cpu"], output: Path, minutes: float) -> ContactResult:
    """All parts that ``minutes`` allow; ``output`` gets the result file, and a log and results of each part.

    Raises InputError where there is no such device, or nothing can be written.
    """
    facts = device_facts(device)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output {output}: {error.strerror}; change --output") from None
    ends = time.monotonic() + 60 * minutes
    result = ContactResult(f"{facts.count} x {facts.name}", torch.__version__, time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    result.add(_features(device, output, ends), output)
    for part in parts(facts, output):
        left_s = ends - time.monotonic()
        if left_s < LEAST_S:
            result.add(PartResult(part.name, "left out", "no time was left: raise --minutes", 0.0), output)
        else:
            result.add(_run(part, output, min(part.limit_s, left_s)), output)
    return result


def parts(facts: DeviceFacts, output: Path) -> Iterator[CommandPart]:
    """What is worth most first."""
    on_gpu = facts.name != "cpu"
    yield CommandPart(
        "environment",
        ("benchmark.machine.environment_snapshot", str((output / "environment.json").absolute())),
        120.0,
        "environment.json",
        lambda found: ", ".join(f"{name} {found['versions'].get(name, '-')}" for name in ("torch", "cuda", "nccl")),
    )
    yield _slice("slice", output, 600.0, *(() if on_gpu else SMALL))
    yield CommandPart("preflight", ("benchmark", "preflight", "--json"), 300.0, "", _tell_of_preflight)
    if not on_gpu:
        return
    yield _slice("slice of two", output, 400.0, "--micro-batch-size", "2")
    where = str((output / "contention.json").absolute())
    words = ("benchmark.slice_run.first_contact.contention", where)
    yield CommandPart("contention", words, 120.0, "contention.json", contention.tell)
    if facts.count > 1:
        size = max(size for size in (2, 4, 8) if size <= facts.count)
        yield _slice("tensor slice", output, 600.0, "--tensor-parallel", str(size))
        yield _slice("pipeline slice", output, 600.0, "--pipeline-parallel", "2")


def _slice(name: str, output: Path, limit_s: float, *options: str) -> CommandPart:
    folder = name.replace(" ", "_")
    where = str((output / folder).absolute())
    arguments = ("benchmark", "slice", "gpt3_175b", "--output", where, "--profile", *options)
    return CommandPart(name, arguments, limit_s, f"{folder}/slice.json", _tell_of_slice)


def _tell_of_slice(found: Any) -> str:
    mfu = "" if found["mfu"] is None else f", MFU {found['mfu']:.1%}"
    problems = "".join(f"; NOT measured: {problem}" for problem in found["problems"])
    step = f"{found['step_s']:.4g} s a step, {found['tflops_per_device']:.4g} TFLOP/s per device{mfu}"
    return f"{found['layers']} layers, {step}{problems}"


def _tell_of_preflight(found: Any) -> str:
    bad = [check for check in found["checks"] if check["outcome"] in ("FAILED", "warning")]
    if not bad:
        return f"{len(found['checks'])} checks"
    return "; ".join(f"{check['outcome']} {check['name']}: {check['found']}" for check in bad)


def _features(device: Literal["cuda", "cpu"], output: Path, ends: float) -> PartResult:
    """Each for itself; those for which there is no time are left out."""
    folder, started, results = output / "features", time.perf_counter(), []
    folder.mkdir(exist_ok=True)
    for stale in folder.iterdir():
        stale.unlink()
    for feature in FEATURES:
        if time.monotonic() > ends:
            break
        results.append(try_feature(feature, device, folder))
        one = results[-1]
        print(f"  {one.outcome:<9}{one.name:<22}{one.found}", flush=True)
        partial = json.dumps([asdict(one) for one in results], indent=1)
        (folder / "features.json").write_text(partial + "\n")
    failed = [one for one in results if one.outcome == "failed"]
    worked = sum(one.outcome == "ok" for one in results)
    found = f"{worked} of {len(FEATURES)} work"
    if failed:
        names = ", ".join(
            f"{one.name} (then {one.without})" if one.without else f"{one.name} (NEEDED)" for one in failed
        )
        found += f"; failed: {names}"
    needed = [one for one in failed if not one.without]
    outcome: Outcome = "failed" if needed or len(results) < len(FEATURES) else "ok"
    seconds = time.perf_counter() - started
    return PartResult("features", outcome, found, round(seconds, 1), [asdict(one) for one in results])


def _run(part: CommandPart, output: Path, limit_s: float) -> PartResult:
    """The command in a process group of its own, which is ended when it takes too long."""
    started, log = time.perf_counter(), output / f"{part.name.replace(' ', '_')}.log"
    left = output / part.result if part.result else log
    if part.result:
        left.unlink(missing_ok=True)  # an earlier contact's
    with log.open("w") as file, (output / f"{log.stem}.err").open("w") as errors:
        words = [sys.executable, "-m", *part.arguments]
        process = subprocess.Popen(words, cwd=REPOSITORY, stdout=file, stderr=errors, start_new_session=True)
        status = _ended(process, limit_s)
    seconds = round(time.perf_counter() - started, 1)
    try:
        details = json.loads(left.read_text())
        found = part.tell(details)
    except (OSError, ValueError, KeyError, TypeError):
        details, found = None, ""
    if status == 0 and found:
        return PartResult(part.name, "ok", found, seconds, details)
    why = f"no end within {limit_s:.0f} s" if status is None else f"status {status}"
    said = [found, last_line(log)] if found and part.result else [found or last_line(output / f"{log.stem}.err")]
    return PartResult(part.name, "failed", f"{why}: {'; '.join(said)}", seconds, details)


def _ended(process: "subprocess.Popen[bytes]", limit_s: float) -> int | None:
    """The exit status; None where it had to be ended, with all that it had started."""
    try:
        return process.wait(limit_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise
