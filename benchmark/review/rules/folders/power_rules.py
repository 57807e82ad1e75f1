"""Power logs beside results: can the energy be what the official summarizer computes from them?

It takes results/SYSTEM/gpt3/power/result_N/{node,sw}_*.txt: the sum of readings times the time since the one before,
over the time from power_measurement_start to power_measurement_stop, times the time to train and ``conversion_eff``
(mlperf-logging, result_summarizer). Readings in watts make joules of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmark.results.mllog import read_log
from benchmark.results.result_log import ResultLog, as_number
from benchmark.results.subjects import ResultSet
from benchmark.review.findings import Deviation, Run
from benchmark.review.rules.folders.result_folder_rules import POWER
from model.flops import train_flops_per_token
from stage.regular_files import children, is_folder, is_regular

MOST_NODES = 4096
PAUSE = 0.02
"""Of the measured time without a reading that the summarizer counts as no power at all."""
UNCOVERED = 0.02
"""Of the run before the measurement begins, or after it ends."""
MOST_FLOP_PER_J = 6e12
"""A B200's 8-bit peak is twice its BF16 peak (docs/facts/peers.md 1.0): 4.5e12 for each joule of its 1,000 W (from
memory), without hosts and network."""
MOST_W_PER_DEVICE = 3000.0
"""With its share of host and cooling: beyond it, readings are hardly watts."""
LEAST_EFFICIENCY, MOST_EFFICIENCY = 1.0, 1.5
"""``conversion_eff`` multiplies: below 1 it makes a measured energy smaller."""

COUNTS = ("number_of_nodes", "accelerators_per_node")


@dataclass(frozen=True)
class NodePower:
    """One log of a node."""

    start_ms: int
    stop_ms: int
    """Of the last reading, where no stop is logged."""
    readings: tuple[tuple[int, float], ...]
    """Time in ms since the epoch and watts, by time, from the start to the stop."""
    efficiency: float

    @property
    def mean_w(self) -> float:
        """As the summarizer has it: what lies between the last reading and the stop counts as 0."""
        total, before = 0.0, self.start_ms
        for time_ms, watts in self.readings:
            total += watts * (time_ms - before)
            before = time_ms
        return self.efficiency * total / max(1, self.stop_ms - self.start_ms)


def unreadable(one: ResultSet) -> Iterator[Deviation]:
    for _, path, found in _nodes(one):
        if isinstance(found, str):
            due = "power_measurement_start, power_reading with a number of watts each, power_measurement_stop"
            yield Deviation(path, None, found, due, "give the log as the meter's program wrote it")


def pauses(one: ResultSet) -> Iterator[Deviation]:
    """Time without readings lowers the mean."""
    for _, path, node in _nodes(one):
        if isinstance(node, str):
            continue
        span = node.stop_ms - node.start_ms
        rest = node.stop_ms - node.readings[-1][0]
        if rest > PAUSE * span:
            found = f"{rest / 1000:,.0f} s of {span / 1000:,.0f} s without a reading before power_measurement_stop"
            yield Deviation(path, None, found, "readings to the end", "measure to the end: a pause counts as 0 W")


def not_covered(one: ResultSet) -> Iterator[Deviation]:
    for run, path, node in _nodes(one):
        if isinstance(node, str) or run.run_start_ms is None or run.run_stop_ms is None:
            continue
        start, stop = run.run_start_ms, run.run_stop_ms
        outside = max(0, node.start_ms - start) + max(0, stop - node.stop_ms)
        if outside > UNCOVERED * max(1, stop - start):
            found = f"{outside / 1000:,.0f} s of the run's {(stop - start) / 1000:,.0f} s are not measured"
            due = "a measurement from run_start to run_stop"
            yield Deviation(path, None, found, due, "measure the whole run: its mean stands for the time to train")


def efficiency(one: ResultSet) -> Iterator[Deviation]:
    for _, path, node in _nodes(one):
        if not isinstance(node, str) and not LEAST_EFFICIENCY <= node.efficiency <= MOST_EFFICIENCY:
            found = f"conversion_eff {node.efficiency:g}, by which the energy is multiplied"
            due = f"{LEAST_EFFICIENCY:g} to {MOST_EFFICIENCY:g}: the losses of what the meter does not see"
            yield Deviation(path, None, found, due, "give the reciprocal, if it is an efficiency, and its source")


def fewer_nodes(one: ResultSet) -> Iterator[Deviation]:
    """The summarizer adds up the files that are there."""
    nodes = None if one.system is None else one.system.count("number_of_nodes")
    for folder in _folders(one):
        there = len(_node_files(folder))
        if nodes is not None and there != nodes:
            mend = "measure every node, or tell how the others' energy was found"
            yield Deviation(folder, None, f"power logs of {there} nodes", f"{nodes} by the description", mend)


def impossible(one: ResultSet) -> Iterator[Deviation]:
    """Less energy than the arithmetic takes on the best devices."""
    for folder, run, watts in _totals(one):
        if run.trained_tokens is None or not run.run_ms or run.run_ms < 0:
            continue
        flops = run.trained_tokens * train_flops_per_token(one.judged.benchmark.model)
        joules = watts * run.run_ms / 1000
        if joules <= 0 or flops / joules > MOST_FLOP_PER_J:
            found = f"{joules:,.0f} J for {flops:.3g} FLOP"
            due = f"at least {flops / MOST_FLOP_PER_J:,.0f} J, with 8-bit arithmetic at its peak alone"
            yield Deviation(folder, None, found, due, "give readings in watts, of every node")


def too_much(one: ResultSet) -> Iterator[Deviation]:
    """More power than devices of the description can take."""
    nodes, each = (None if one.system is None else one.system.count(name) for name in COUNTS)
    devices = None if nodes is None or each is None else nodes * each
    for folder, _, watts in _totals(one):
        if devices and watts > MOST_W_PER_DEVICE * devices:
            found = f"{watts / devices:,.0f} W for each of {devices:,} accelerators"
            due = f"at most {MOST_W_PER_DEVICE:,.0f} W, host and cooling included"
            yield Deviation(folder, None, found, due, "give readings in watts")


def _totals(one: ResultSet) -> Iterator[tuple[Path, Run, float]]:
    """Folder, run and mean watts of all nodes together, where every log can be read."""
    nodes: dict[Path, list[NodePower | str]] = {}
    runs = {}
    for run, path, node in _nodes(one):
        nodes.setdefault(path.parent, []).append(node)
        runs[path.parent] = run
    for folder, found in nodes.items():
        whole = [node for node in found if isinstance(node, NodePower)]
        if len(whole) == len(found):
            yield folder, runs[folder], sum(node.mean_w for node in whole)


def _nodes(one: ResultSet) -> Iterator[tuple[Run, Path, NodePower | str]]:
    """Each node's log of each run; why it cannot be read."""
    runs = {path.stem: run for path, run in zip(one.files, one.runs, strict=True)}
    for folder in _folders(one):
        if folder.name in runs:
            for path in _node_files(folder):
                yield runs[folder.name], path, _node(path)


def _folders(one: ResultSet) -> list[Path]:
    """power/result_N of the results."""
    power = None if one.folder is None else one.folder / POWER
    return [] if power is None else [path for path in children(power) if is_folder(path)]


def _node_files(folder: Path) -> list[Path]:
    return [path for path in children(folder) if path.match("node_*.txt") and is_regular(path)][:MOST_NODES]


def _node(path: Path) -> NodePower | str:
    log = read_log(path)
    starts, stops = log.all("power_measurement_start"), log.all("power_measurement_stop")
    if len(starts) != 1 or len(stops) > 1:
        return f"{len(starts)} power_measurement_start, {len(stops)} power_measurement_stop"
    readings = []
    for event in log.all("power_reading"):
        watts = as_number(event.value.get("value")) if isinstance(event.value, dict) else None
        if watts is None or watts < 0:
            return f"power_reading {event.value!r:.60} in line {event.line}"
        readings.append((event.time_ms, float(watts)))
    start = starts[0].time_ms
    stop = stops[0].time_ms if stops else max((time for time, _ in readings), default=start)
    inside = sorted(one for one in readings if start <= one[0] <= stop)
    if not inside or stop <= start:
        return f"{len(inside)} power_reading between power_measurement_start and power_measurement_stop"
    factor = _efficiency(log)
    if factor is None:
        return "conversion_eff that is no number"
    return NodePower(start, stop, tuple(inside), factor)


def _efficiency(log: ResultLog) -> float | None:
    event = log.last("conversion_eff")
    if event is None:
        return 1.0
    return as_number(event.value.get("value")) if isinstance(event.value, dict) else None
