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
from benchmark.preflight.first_contact.features import FEATURES
from benchmark.preflight.slice_run.device_facts import DeviceFacts, device_facts
from stage.errors import InputError
from stage.git import REPOSITORY
from stage.outputs.publish import write_text

RESULT = "contact.json"
FORMAT = 2
SMALL = ("--device", "cpu", "--hidden-size", "512", "--seq-length", "128", "--layers", "1", "--micro-batches", "2")
"""Of a slice on a CPU: whether it runs."""
LEAST_S = 20.0
"""A part that would have less time than this is left out."""
FEATURE_S = 60.0
"""For one feature; the first use of a library loads hundreds of megabytes."""


@dataclass(frozen=True)
class ContactPart:
    """A command that is a part of the contact."""

    name: str
    arguments: tuple[str, ...]
    """After ``python -m``."""
    limit_s: float
    result: str = ""
    """File in the output folder that it leaves, JSON."""
    tell: Callable[[Any], str] | None = None
    """From that file, in a line; None: its last line tells."""
    without: str = ""
    """What a run does without it; empty: it cannot."""

    @property
    def stem(self) -> str:
        """Of its files' names."""
        return self.name.replace(" ", "_")


@dataclass(frozen=True)
class PartResult:
    """What became of one part."""

    name: str
    outcome: Literal["ok", "failed", "left out"]
    found: str
    """In a line."""
    seconds: float = 0.0
    without: str = ""
    """Of one that failed: what a run does without it; empty: it cannot."""
    details: Any = None
    """What its own result file holds."""


@dataclass
class ContactResult:
    """All parts so far."""

    device: str
    torch: str
    began: str
    parts: list[PartResult] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(part.outcome == "ok" or part.without for part in self.parts)

    def add(self, part: PartResult, output: Path) -> None:
        """Write it, with all before it, and say it."""
        self.parts.append(part)
        text = json.dumps({"format": FORMAT, "passed": self.passed, **asdict(self)}, indent=1)
        write_text(output / RESULT, text + "\n")
        then = f"; then {part.without}" if part.without else ""
        print(f"{part.outcome:<9}{part.name:<20}{part.seconds:6.0f} s  {part.found}{then}", flush=True)


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
    for part in parts(facts, output.absolute()):
        left_s = ends - time.monotonic()
        if left_s < LEAST_S:
            result.add(PartResult(part.name, "left out", "no time was left: raise --minutes"), output)
        else:
            result.add(_run(part, output, min(part.limit_s, left_s)), output)
    return result


def parts(facts: DeviceFacts, output: Path) -> Iterator[ContactPart]:
    """Yield what is worth most first. ``output``: an absolute path."""
    on_gpu = facts.name != "cpu"
    for name, feature in FEATURES.items():
        if on_gpu or feature.on_cpu:
            words = ("benchmark.preflight.first_contact.features", name, "cuda" if on_gpu else "cpu")
            yield ContactPart(name, words, FEATURE_S, without=feature.without)
    snapshot = ("benchmark.machine.environment_snapshot", str(output / "environment.json"))
    yield ContactPart("environment", snapshot, 120.0, "environment.json", _tell_of_environment)
    yield _slice("slice", output, 600.0, *(() if on_gpu else SMALL))
    yield ContactPart("preflight", ("benchmark", "preflight", "--json"), 300.0, "preflight.log", _tell_of_preflight)
    if not on_gpu:
        return
    yield _slice("slice of two", output, 400.0, "--micro-batch-size", "2")
    beside = ("benchmark.preflight.first_contact.contention", str(output / "contention.json"))
    yield ContactPart("contention", beside, 120.0, "contention.json", contention.tell)
    if facts.count > 1:
        size = max(size for size in (2, 4, 8) if size <= facts.count)
        yield _slice("tensor slice", output, 600.0, "--tensor-parallel", str(size))
        yield _slice("pipeline slice", output, 600.0, "--pipeline-parallel", "2")


def _slice(name: str, output: Path, limit_s: float, *options: str) -> ContactPart:
    folder = name.replace(" ", "_")
    arguments = ("benchmark", "slice", "gpt3_175b", "--output", str(output / folder), "--profile", *options)
    return ContactPart(name, arguments, limit_s, f"{folder}/slice.json", _tell_of_slice)


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


def _run(part: ContactPart, output: Path, limit_s: float) -> PartResult:
    """Run the command in a process group of its own, which is ended when it takes too long."""
    started, log, errors = time.perf_counter(), output / f"{part.stem}.log", output / f"{part.stem}.err"
    if part.result:
        (output / part.result).unlink(missing_ok=True)  # an earlier contact's
    with log.open("w") as said, errors.open("w") as complained:
        words = [sys.executable, "-m", *part.arguments]
        process = subprocess.Popen(words, cwd=REPOSITORY, stdout=said, stderr=complained, start_new_session=True)
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    seconds = round(time.perf_counter() - started, 1)
    details, found = None, last_line(log)
    if part.tell is not None:
        try:
            details = json.loads((output / part.result).read_text())
            found = part.tell(details)
        except (OSError, ValueError, KeyError, TypeError):
            status = 1 if status == 0 else status  # it left nothing
    if status == 0:
        return PartResult(part.name, "ok", found, seconds, details=details)
    why = f"no end within {limit_s:.0f} s" if status is None else f"status {status}"
    told = [found or "it said nothing", last_line(errors)]
    return PartResult(part.name, "failed", f"{why}: {'; '.join(filter(None, told))}", seconds, part.without, details)


def last_line(log: Path) -> str:
    """Return the last line that a process printed, at most 300 characters; empty where it printed nothing."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
