"""How long a planned conversion takes: on one machine or several, from disk or from a bucket, and what limits it."""

from collections.abc import Sequence
from dataclasses import dataclass

from checkpoint_convert.conversion.conversion_plan import PlanTotals


@dataclass(frozen=True)
class MachineRates:
    """Of each machine, 10^6 bytes per second; several do not take them from each other."""

    disk: float
    """Reading and writing together."""
    network: float
    """What arrives from a bucket."""


@dataclass(frozen=True)
class PlannedTime:
    source: str
    """"disk" or "bucket"."""
    nodes: int
    minutes: float
    limited_by: str
    """"disk" or "network"."""


def planned_times(totals: PlanTotals, nodes: Sequence[int], rates: MachineRates) -> list[PlannedTime]:
    """For each number of machines, from disk and from a bucket.

    From disk all goes through it. From a bucket only what is written does, while the rest arrives. Tasks share the
    bytes evenly; the join moves none. Requests and unpacking are not counted.
    """
    found = []
    for count in nodes:
        through_disk = (totals.bytes_read + totals.bytes_written) / (rates.disk * 1e6 * 60 * count)
        found.append(PlannedTime("disk", count, through_disk, "disk"))
        arriving = totals.bytes_read / (rates.network * 1e6 * 60 * count)
        writing = totals.bytes_written / (rates.disk * 1e6 * 60 * count)
        limit = "network" if arriving > writing else "disk"
        found.append(PlannedTime("bucket", count, max(arriving, writing), limit))
    return found


def format_times(times: Sequence[PlannedTime], rates: MachineRates) -> str:
    """A line for each."""
    lines = [f"with {rates.disk:,.0f} MB/s of disk and {rates.network:,.0f} MB/s of network for each machine:"]
    for one in times:
        machines = "1 machine " if one.nodes == 1 else f"{one.nodes} machines"
        lines.append(
            f"  from {one.source:<6}  {machines:<14} {one.minutes:>8,.1f} minutes, limited by {one.limited_by}"
        )
    return "\n".join(lines)
