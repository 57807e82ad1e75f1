"""Check the files beside a log: the evidence of its run, and power logs.

Evidence is the chain of a run trained with --evidence, in its folder or in the package. A run without evidence, or with
part of it, is as good as any other. Only ``replay`` trains steps again; this check does not.

Power logs: could these devices have taken this energy in that time? The official summarizer takes
results/SYSTEM/BENCHMARK/power/result_N/node_*.txt and sw_*.txt: the sum of readings in watts times the time since the
one before, over the time from power_measurement_start to power_measurement_stop, times the time to train and
``conversion_eff``. Published ones: v4.0 smc-ac-power and smc-dc-power, 64 nodes each, a reading every two seconds, of
about 6,500 W.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.judging.results.subjects import ResultSet
from benchmark.judging.review.findings import Deviation, Run, at
from benchmark.run_record.evidence_chain import BeginRecord, Chain, broken_links, gaps, read_chain
from benchmark.run_record.file_names import CONFIG_FILE, EVIDENCE_FILE, INPUTS_FILE, RESULT_FILES
from foundation.errors import InputError
from foundation.regular_files import children, is_regular, read_regular

FOLDER = "evidence"
"""Folder in benchmarks/BENCHMARK/implementations/SYSTEM of a package, with a subfolder for each result."""
MOST_TOLD = 12
"""Largest number of a run's links that are named."""
POWER = "power"
"""Folder with power logs in results/SYSTEM/BENCHMARK."""
MOST_BYTES = 16 << 20
MOST_NODES = 4096
RECORD = re.compile(
    rb'"time_ms":\s*(\d{1,18})\b[^\n]*"key":\s*"(power_reading|power_measurement_st(?:art|op)|conversion_eff)"'
    rb'[^\n]*?"value":\s*([^,}\n]*)'
)
"""Pattern of a line as mllog writes it: time, key, and value up to the next field."""
NOT_MEASURED = 0.02
"""Largest share of a run before the measurement begins, after it ends, or without a reading."""
MOST_FLOP_PER_J = 6e12
"""Most FLOPs per joule in 8-bit numbers. A B200's 8-bit peak is twice its BF16 peak (docs/facts/peers.md 1.0): 4.5e12
for each joule of its 1,000 W (same source), without hosts and network; a GB300 has 5.4e12 in 4-bit numbers, halved."""
MOST_W = 3000.0
"""Most watts for each accelerator with its share of host and cooling; published results have 830."""
EFFICIENCY = (1.0, 1.5)
"""Range of ``conversion_eff``, by which the energy is multiplied: below 1 it would make a measured energy smaller."""


@dataclass(frozen=True)
class NodePower:
    """Power log of a node, as the summarizer reads it."""

    start_ms: int
    stop_ms: int
    """Time of the last reading, if no stop is logged."""
    mean_w: float
    """Mean power of the whole time; time between the last reading and the stop counts as 0 W."""
    longest_ms: int
    """Longest time between two readings, or from the last reading to the stop."""
    efficiency: float


def evidence(results: ResultSet) -> Iterator[Deviation]:
    """Check the links of the evidence: links that no honest run leaves are errors. The extent of the evidence is a
    note, since a full disk costs evidence, not the run."""
    for log, run in zip(results.files, results.runs, strict=True):
        folder = log.parent
        if results.package is not None:
            package, system = folder.parents[2], folder.parent.name
            folder = package / "benchmarks" / folder.name / "implementations" / system / FOLDER / log.stem
        elif len(list(folder.glob(RESULT_FILES))) > 1:
            continue  # whose evidence it is nobody knows
        path = folder / EVIDENCE_FILE
        digest = run.log.last("evidence")
        if not path.is_file() and digest is not None:
            yield at(run, digest, "the digest of evidence that is not here", path.name, "missing")
        if not path.is_file() or not run.log.events:
            continue
        expected = "such evidence; python -m benchmark replay, with this folder, --steps and --log, trains a part again"
        try:
            chain = read_chain(path)
            faults = broken_links(chain, log)
        except (InputError, OSError) as error:
            observed = f"evidence that is not read: {error}".replace(f"{folder}/", "")
            yield Deviation(path, None, observed, "nothing", "unread")
            continue
        for fault in faults[:MOST_TOLD] if chain.links else ():  # a full disk leaves an empty file
            where = "" if fault.step is None else f"step {fault.step}: "
            yield Deviation(path, fault.line, f"{where}{fault.subject}: {fault.recorded}", fault.actual)
        if digest is not None and chain.problem is None and chain.by_digest(str(digest.value)) is None:
            yield at(run, digest, "a digest that the evidence does not have", "the record before its end", "cut")
        yield from _changed_files(folder, chain)
        steps = chain.links[-1].record.step if chain.links else 0
        yield Deviation(path, None, "; ".join(gaps(chain)) or f"evidence of {steps} steps", expected, "extent")


def _changed_files(folder: Path, chain: Chain) -> Iterator[Deviation]:
    """Ask about a configuration, or identities of inputs, beside the chain that are in none of its beginnings."""
    begins = [link.record for link in chain.links if isinstance(link.record, BeginRecord)]
    config, inputs = _json_object(folder / CONFIG_FILE), _json_object(folder / INPUTS_FILE)
    written, data = is_regular(folder / CONFIG_FILE), config.get("data")
    config |= {"seed": data["seed"]} if isinstance(data, dict) and "seed" in data else {}
    if begins and written and not any(config and _agree(begin.config, config) for begin in begins):
        yield Deviation(
            folder / CONFIG_FILE, None, "a configuration that the evidence does not have", "its own", "edited"
        )
    digests = {
        f"{purpose} {number}": {**entry.get("facts", {}), "md5": entry.get("md5")}
        for purpose in ("train", "valid")
        for number, entry in enumerate(inputs[purpose] if isinstance(inputs.get(purpose), list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("facts"), dict)
    }
    if begins and digests and not any(_agree(begin.inputs, digests) for begin in begins):
        yield Deviation(folder / INPUTS_FILE, None, "inputs that the evidence does not have", "its own", "edited")


def _json_object(path: Path) -> dict[str, Any]:
    """Return the object in a file; an empty one if there is none."""
    try:
        content = json.loads(read_regular(path, MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _agree(recorded: object, content: object) -> bool:
    """Return whether two values agree in all keys that both have; JSON writes tuples as arrays."""
    if isinstance(recorded, dict) and isinstance(content, dict):
        return all(_agree(recorded[key], content[key]) for key in recorded.keys() & content.keys())
    return recorded == content


def energy(results: ResultSet) -> Iterator[Deviation]:
    """Check the energy. Less energy than the arithmetic takes on the best devices is impossible; more power than the
    devices can take, and unmeasured time, are questions."""
    for path, run in zip(results.files, results.runs, strict=True):
        folder = path.parent / POWER / path.stem
        paths = [path for path in children(folder) if path.match("node_*.txt") and is_regular(path)][:MOST_NODES]
        if results.folder is not None and paths:
            yield from _of_run(results, run, folder, paths)


def _of_run(results: ResultSet, run: Run, folder: Path, paths: list[Path]) -> Iterator[Deviation]:
    nodes = None if results.system is None else results.system.count("number_of_nodes")
    devices = None if results.system is None else results.system.accelerators
    logs: dict[Path, NodePower] = {}
    for path in paths:
        try:
            logs[path] = _node(path)
        except (OSError, ValueError) as error:
            expected = (
                "power_measurement_start, power_reading with a number of watts as its value, power_measurement_stop"
            )
            yield Deviation(path, None, str(error), expected, "unread")
            break
    else:
        watts = sum(node.mean_w * node.efficiency for node in logs.values())
        joules = watts * (run.run_ms or 0) / 1000
        bits = results.judged.limits.narrowest_bits
        most = MOST_FLOP_PER_J * 8 / bits
        flops = (run.trained_tokens or 0) * results.judged.flops_per_token
        if nodes is not None and len(logs) != nodes:
            yield Deviation(folder, None, f"power logs of {len(logs)} nodes", f"{nodes} by the description", "nodes")
        elif (run.run_ms or 0) > 0 and (joules <= 0 or flops > most * joules):
            expected = f"at least {flops / most:,.0f} J, with {bits}-bit arithmetic at its peak alone"
            yield Deviation(folder, None, f"{joules:,.0f} J for {flops:.3g} FLOP", expected)
        elif devices and watts > MOST_W * devices:
            observed = f"{watts / devices:,.0f} W for each of {devices:,} accelerators"
            yield Deviation(folder, None, observed, f"at most {MOST_W:,.0f} W, host and cooling included", "power")
    for path, node in logs.items():  # the first node whose measurement does not cover the whole run
        start, stop = run.run_start_ms or node.start_ms, run.run_stop_ms or node.stop_ms
        missing = max(0, node.start_ms - start) + max(0, stop - node.stop_ms)
        if max(missing, node.longest_ms) > NOT_MEASURED * max(1, stop - start):
            observed = (
                f"{max(missing, node.longest_ms) / 1000:,.0f} s of {(stop - start) / 1000:,.0f} s without a reading"
            )
            yield Deviation(path, None, observed, "readings from run_start to run_stop", "unmeasured")
            return
        if not EFFICIENCY[0] <= node.efficiency <= EFFICIENCY[1]:
            observed = f"conversion_eff {node.efficiency:g}, by which the energy is multiplied"
            yield Deviation(path, None, observed, f"{EFFICIENCY[0]:g} to {EFFICIENCY[1]:g}", "efficiency")
            return


def _node(path: Path) -> NodePower:
    """Read a node's log. Raises OSError if it cannot be read, and ValueError if it lacks a field of the summarizer."""
    records = RECORD.findall(read_regular(path, MOST_BYTES))
    starts = [int(time) for time, key, _ in records if key == b"power_measurement_start"]
    stops = [int(time) for time, key, _ in records if key == b"power_measurement_stop"]
    readings = sorted((int(time), float(value)) for time, key, value in records if key == b"power_reading")
    efficiency = [float(value) for _, key, value in records if key == b"conversion_eff"]
    start = starts[0] if len(starts) == 1 else 0
    stop = stops[0] if stops else max((time for time, _ in readings), default=0)
    inside = [reading for reading in readings if start <= reading[0] <= stop]
    if len(starts) != 1 or len(stops) > 1 or not inside or stop <= start or min(watts for _, watts in inside) < 0:
        counts = f"{len(starts)} power_measurement_start, {len(stops)} power_measurement_stop"
        raise ValueError(f"{counts}, {len(inside)} readings")
    total, previous, longest = 0.0, start, 0
    for time, watts in inside:
        total += watts * (time - previous)
        previous, longest = time, max(longest, time - previous)
    return NodePower(start, stop, total / (stop - start), max(longest, stop - previous), (efficiency or [1.0])[-1])
