"""``benchmark preflight --first-contact``: its parts, one after the other, each with a process and a time of its own.

The result file is rewritten after each part: what comes later can fail, or the machine be taken away, and what was
found stays.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from benchmark.preflight.first_contact import contention
from benchmark.preflight.first_contact.features import FEATURES, Outcome, last_line, try_feature
from benchmark.preflight.slice_run.device_facts import DeviceFacts, device_facts
from stage.errors import InputError
from stage.git import REPOSITORY
from stage.outputs.publish import write_text

RESULT = "contact.json"
FORMAT = 1
SMALL = ("--device", "cpu", "--hidden-size", "512", "--seq-length", "128", "--layers", "1", "--micro-batches", "2")
"""Of a slice on a CPU: whether it runs."""
LEAST_S = 20.0
"""A part that would have less time than this is left out."""


@dataclass(frozen=True)
class PartResult:
    """What became of one part."""

    name: str
    outcome: Outcome
    found: str
    """In a line."""
    seconds: float
    details: Any = None
    """What its own result file holds, or its rows."""


@dataclass
class ContactResult:
    """All parts so far."""

    device: str
    torch: str
    began: str
    parts: list[PartResult] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(part.outcome in ("ok", "skipped") for part in self.parts)

    def add(self, part: PartResult, output: Path) -> None:
        """Write it, with all before it, and say it."""
        self.parts.append(part)
        text = json.dumps({"format": FORMAT, "passed": self.passed, **asdict(self)}, indent=1)
        write_text(output / RESULT, text + "\n")
        print(f"{part.outcome:<9}{part.name:<16}{part.seconds:6.0f} s  {part.found}", flush=True)


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
    """Do all parts that ``minutes`` allow; ``output`` gets the result file, and a log and results of each part.

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
    for part in parts(facts, output.absolute()):
        left_s = ends - time.monotonic()
        if left_s < LEAST_S:
            result.add(PartResult(part.name, "left out", "no time was left: raise --minutes", 0.0), output)
        else:
            result.add(_run(part, output, min(part.limit_s, left_s)), output)
    return result


def parts(facts: DeviceFacts, output: Path) -> Iterator[CommandPart]:
    """Yield what is worth most first. ``output``: an absolute path."""
    on_gpu = facts.name != "cpu"
    snapshot = ("benchmark.machine.environment_snapshot", str(output / "environment.json"))
    yield CommandPart("environment", snapshot, 120.0, "environment.json", _tell_of_environment)
    yield _slice("slice", output, 600.0, *(() if on_gpu else SMALL))
    yield CommandPart("preflight", ("benchmark", "preflight", "--json"), 300.0, "", _tell_of_preflight)
    if not on_gpu:
        return
    yield _slice("slice of two", output, 400.0, "--micro-batch-size", "2")
    beside = ("benchmark.preflight.first_contact.contention", str(output / "contention.json"))
    yield CommandPart("contention", beside, 120.0, "contention.json", contention.tell)
    if facts.count > 1:
        size = max(size for size in (2, 4, 8) if size <= facts.count)
        yield _slice("tensor slice", output, 600.0, "--tensor-parallel", str(size))
        yield _slice("pipeline slice", output, 600.0, "--pipeline-parallel", "2")


def _slice(name: str, output: Path, limit_s: float, *options: str) -> CommandPart:
    folder = name.replace(" ", "_")
    arguments = ("benchmark", "slice", "gpt3_175b", "--output", str(output / folder), "--profile", *options)
    return CommandPart(name, arguments, limit_s, f"{folder}/slice.json", _tell_of_slice)


def _tell_of_environment(found: Any) -> str:
    return ", ".join(f"{name} {found['versions'].get(name, '-')}" for name in ("torch", "cuda", "nccl"))


def _tell_of_slice(found: Any) -> str:
    mfu = "" if found["mfu"] is None else f", MFU {found['mfu']:.1%}"
    problems = "".join(f"; NOT measured: {problem}" for problem in found["problems"])
    step = f"{found['step_s']:.4g} s a step, {found['tflops_per_device']:.4g} TFLOP/s per device{mfu}"
    return f"{found['layers']} layers, {step}{problems}"


def _tell_of_preflight(found: Any) -> str:
    bad = [check for check in found["checks"] if check["outcome"] in ("FAILED", "warning")]
    told = "; ".join(f"{check['outcome']} {check['name']}: {check['found']}" for check in bad)
    return told or f"{len(found['checks'])} checks"


def _features(device: Literal["cuda", "cpu"], output: Path, ends: float) -> PartResult:
    """Each for itself; those for which there is no time are left out."""
    folder, started, results = output / "features", time.perf_counter(), []
    folder.mkdir(exist_ok=True)
    for stale in folder.iterdir():
        stale.unlink()
    for feature in FEATURES:
        if time.monotonic() > ends:
            break
        one = try_feature(feature, device, folder)
        results.append(one)
        print(f"  {one.outcome:<9}{one.name:<22}{one.found}", flush=True)
        (folder / "features.json").write_text(json.dumps([asdict(row) for row in results], indent=1) + "\n")
    failed = [one for one in results if one.outcome == "failed"]
    found = f"{sum(one.outcome == 'ok' for one in results)} of {len(FEATURES)} work"
    if failed:
        names = (f"{one.name} ({f'then {one.without}' if one.without else 'NEEDED'})" for one in failed)
        found += f"; failed: {', '.join(names)}"
    bad = len(results) < len(FEATURES) or not all(one.without for one in failed)
    seconds = round(time.perf_counter() - started, 1)
    return PartResult("features", "failed" if bad else "ok", found, seconds, [asdict(one) for one in results])


def _run(part: CommandPart, output: Path, limit_s: float) -> PartResult:
    """The command in a process group of its own, which is ended when it takes too long."""
    started, log = time.perf_counter(), output / f"{part.name.replace(' ', '_')}.log"
    left = output / part.result if part.result else log
    if part.result:
        left.unlink(missing_ok=True)  # an earlier contact's
    with log.open("w") as file, (output / f"{log.stem}.err").open("w") as errors:
        words = [sys.executable, "-m", *part.arguments]
        process = subprocess.Popen(words, cwd=REPOSITORY, stdout=file, stderr=errors, start_new_session=True)
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
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
