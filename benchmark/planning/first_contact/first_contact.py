"""Run ``benchmark preflight --first-contact``: one part after the other, each in its own process with its own time
limit.

The result file is rewritten after each part, so that earlier results stay if a later part fails or the machine is taken
away.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.planning.first_contact import contention
from benchmark.planning.first_contact.features import FEATURES, LEFT_OUT, WITHOUT_FP8
from benchmark.planning.slice.slice_devices import DeviceFacts, device_facts
from benchmark.planning.slice.tuned_collectives import tuning_lines
from foundation.cli import choose
from foundation.errors import InputError
from foundation.git import REPOSITORY
from foundation.outputs.publish import write_text
from foundation.sizes import significant

RESULT = "contact.json"
FORMAT = 2
SMALL = ("--device", "cpu", "--hidden-size", "512", "--seq-length", "128", "--layers", "1", "--micro-batches", "2")
"""Options of a slice on a CPU, which only shows whether the slice runs."""
LEAST_S = 20.0
"""Least seconds for a part; with less time left, the part is omitted."""
FEATURE_S = 60.0
"""Seconds allowed for one feature; the first use of a library loads hundreds of megabytes."""


@dataclass(frozen=True)
class ContactPart:
    """One part of the first contact: a command."""

    name: str
    arguments: tuple[str, ...]
    """Arguments after ``python -m``."""
    limit_s: float
    result: str = ""
    """JSON file that the command leaves in the output folder; empty if it leaves none."""
    line_of: Callable[[Any], str] | None = None
    """Function that makes a line from that file; with None, the command's last line is used."""
    without: str = ""
    """Substitute that a run uses without this part's feature; empty if there is none."""
    left_out_status: int | None = None
    """Exit status of the command for a device that was not made for this part; None if it has none."""

    @property
    def stem(self) -> str:
        """Return the first part of its files' names."""
        return self.name.replace(" ", "_")


@dataclass(frozen=True)
class PartResult:
    """Result of one part."""

    name: str
    outcome: Literal["ok", "failed", "left out"]
    found: str
    """Result in one line."""
    seconds: float = 0.0
    without: str = ""
    """Substitute that a run uses if this part failed; empty if there is none."""
    details: Any = None
    """Content of the part's own result file."""


@dataclass
class ContactResult:
    """Results of all parts so far."""

    device: str
    torch: str
    began: str
    parts: list[PartResult] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(part.outcome == "ok" or part.without for part in self.parts)

    def add(self, part: PartResult, output: Path) -> None:
        """Write the results with this part's added, and print the part's line."""
        self.parts.append(part)
        text = json.dumps({"format": FORMAT, "passed": self.passed, **asdict(self)}, indent=1)
        write_text(output / RESULT, text + "\n")
        then = f"; then {part.without}" if part.without else ""
        print(f"{part.outcome:<9}{part.name:<20}{part.seconds:6.0f} s  {part.found}{then}", flush=True)


def first_contact(
    device: Literal["cuda", "cpu"], output: Path, minutes: float, benchmark: str = "gpt3_175b"
) -> ContactResult:
    """Run all parts that ``minutes`` allow, with slices of the benchmark; ``output`` gets the result file, and a log
    and results of each part.

    Raises InputError if there is no such device or benchmark, or if ``output`` cannot be written.
    """
    benchmark = choose(benchmark, BENCHMARKS, "benchmark")
    facts = device_facts(device)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output {output}: {error.strerror}; change --output") from None
    ends = time.monotonic() + 60 * minutes
    result = ContactResult(f"{facts.count} x {facts.name}", torch.__version__, time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    for part in parts(facts, output.absolute(), benchmark):
        left_s = ends - time.monotonic()
        if left_s < LEAST_S:
            result.add(PartResult(part.name, "left out", "no time was left: raise --minutes"), output)
        else:
            result.add(_run(part, output, min(part.limit_s, left_s)), output)
    return result


def parts(facts: DeviceFacts, output: Path, benchmark: str = "gpt3_175b") -> Iterator[ContactPart]:
    """Yield the parts, most valuable first. The path ``output`` is absolute."""
    on_gpu = facts.name != "cpu"
    for name, feature in FEATURES.items():
        if on_gpu or feature.on_cpu:
            words = ("benchmark.planning.first_contact.features", name, "cuda" if on_gpu else "cpu")
            yield ContactPart(name, words, FEATURE_S, without=feature.without, left_out_status=LEFT_OUT)
    snapshot = ("benchmark.planning.machine.environment_snapshot", str(output / "environment.json"))
    yield ContactPart("environment", snapshot, 120.0, "environment.json", _environment_line)
    sliced = partial(_slice, benchmark, output)
    yield sliced("slice", 600.0, *(() if on_gpu else SMALL))
    yield ContactPart("preflight", ("benchmark", "preflight", "--json"), 300.0, "preflight.log", _preflight_line)
    if not on_gpu:
        return
    yield sliced("slice of two", 400.0, "--micro-batch-size", "2")
    contending = ("benchmark.planning.first_contact.contention", str(output / "contention.json"))
    yield ContactPart("contention", contending, 120.0, "contention.json", contention.contention_line)
    fp8_slice = sliced("slice in FP8", 400.0, "--precision", "fp8")
    yield replace(fp8_slice, without=WITHOUT_FP8, left_out_status=LEFT_OUT)
    if facts.count > 1:
        size = max(size for size in (2, 4, 8) if size <= facts.count)
        yield sliced("tensor slice", 1200.0, "--tensor-parallel", str(size), "--tune-collectives")
        yield sliced("pipeline slice", 600.0, "--pipeline-parallel", "2")


def _slice(benchmark: str, output: Path, name: str, limit_s: float, *options: str) -> ContactPart:
    folder = name.replace(" ", "_")
    arguments = ("benchmark", "slice", benchmark, "--output", str(output / folder), "--profile", *options)
    return ContactPart(name, arguments, limit_s, f"{folder}/slice.json", _slice_line)


def _environment_line(environment: Any) -> str:
    return ", ".join(f"{name} {environment['versions'].get(name, '-')}" for name in ("torch", "cuda", "nccl"))


def _slice_line(result: Any) -> str:
    mfu = "" if result["mfu"] is None else f", MFU {result['mfu']:.1%}"
    problems = "".join(f"; NOT measured: {problem}" for problem in result["problems"])
    step = f"{result['step_s']:.4g} s a step, {significant(result['tflops_per_device'], 4)} TFLOP/s per device{mfu}"
    ways = "".join(f"; {line}" for line in tuning_lines(result.get("collectives", ()), "system.toml"))
    return f"{result['layers']} layers, {step}{ways}{problems}"


def _preflight_line(result: Any) -> str:
    bad = [check for check in result["checks"] if check["outcome"] in ("FAILED", "warning")]
    line = "; ".join(f"{check['outcome']} {check['name']}: {check['found']}" for check in bad)
    return line or f"{len(result['checks'])} checks"


def _run(part: ContactPart, output: Path, limit_s: float) -> PartResult:
    """Run the command in a process group of its own; end the group when its time is over."""
    started, log, errors = time.perf_counter(), output / f"{part.stem}.log", output / f"{part.stem}.err"
    if part.result:
        (output / part.result).unlink(missing_ok=True)  # an earlier first contact's
    with log.open("w") as output_file, errors.open("w") as error_file:
        words = [sys.executable, "-m", *part.arguments]
        process = subprocess.Popen(words, cwd=REPOSITORY, stdout=output_file, stderr=error_file, start_new_session=True)
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    seconds = round(time.perf_counter() - started, 1)
    details, line = None, last_line(log)
    if part.line_of is not None:
        try:
            details = json.loads((output / part.result).read_text())
            line = part.line_of(details)
        except (OSError, ValueError, KeyError, TypeError):
            status = 1 if status == 0 else status  # there is no such result
    if status == 0:
        return PartResult(part.name, "ok", line, seconds, details=details)
    if status is not None and status == part.left_out_status:
        return PartResult(part.name, "left out", line or last_line(errors), seconds, part.without)
    reason = f"not finished within {limit_s:.0f} s" if status is None else f"status {status}"
    lines = "; ".join(filter(None, (line or "it printed nothing", last_line(errors))))
    return PartResult(part.name, "failed", f"{reason}: {lines}", seconds, part.without, details)


def last_line(log: Path) -> str:
    """Return the last line that a process printed, at most 300 characters; empty if it printed nothing."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
