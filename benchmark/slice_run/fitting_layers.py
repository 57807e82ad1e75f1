"""How many layers a device holds, by the dry run."""

from dataclasses import dataclass
from functools import cache

from benchmark.planning.dry_runs.dry_run import RESERVE, dry_run
from benchmark.slice_run.device_facts import DeviceFacts
from benchmark.slice_run.slice_config import SliceOptions, slice_config
from stage.errors import InputError

NOT_EVEN = {
    "cuda": "not even the fewest fit: raise --tensor-parallel, lower --micro-batch-size or choose --recompute full",
    "cpu": "not even the fewest fit: give a smaller --hidden-size, and --seq-length",
}


@dataclass(frozen=True)
class CountedMemory:
    """What one kind of rank would hold."""

    rank: int
    """One of that kind."""
    kind: str
    peak_bytes: int


@cache
def counted_memory(options: SliceOptions, facts: DeviceFacts, layers: int) -> tuple[CountedMemory, ...]:
    """The dry run's figures: some seconds."""
    found = dry_run(slice_config(options, layers, facts.accelerator)).reports
    return tuple(CountedMemory(report.rank, report.kind, report.peak_bytes) for report in found)


def fullest_bytes(options: SliceOptions, facts: DeviceFacts, layers: int) -> int:
    """At the peak of the rank that holds most."""
    return max(one.peak_bytes for one in counted_memory(options, facts, layers))


def budget_bytes(options: SliceOptions, facts: DeviceFacts) -> int:
    """What a device has for it; CPU processes share one memory."""
    share = facts.memory_bytes if options.device == "cuda" else facts.memory_bytes // options.devices
    return round(share * (1 - RESERVE))


def chosen_layers(options: SliceOptions, facts: DeviceFacts) -> int:
    """Those that were asked for, or as many as fit; raises InputError where they do not, with the number that does."""
    budget = budget_bytes(options, facts)
    if options.layers is not None and fullest_bytes(options, facts, options.layers) <= budget:
        return options.layers
    fitting = largest_fitting(options, facts, options.layers or options.most_layers)
    if options.layers is None and fitting:
        return fitting
    layers = options.layers or options.least_layers
    raise InputError(
        f"layers {layers}: a device would hold {fullest_bytes(options, facts, layers) / 1e9:.1f} GB at the peak, "
        f"{facts.name} has {budget / 1e9:.1f} GB for it; "
        + (f"--layers {fitting} fits" if fitting else NOT_EVEN[options.device])
    )


def largest_fitting(options: SliceOptions, facts: DeviceFacts, most: int) -> int:
    """Layers that fit, at most ``most``, as many on each device; 0 where not even the fewest do.

    Guessed by what one more on each device takes, then counted.
    """
    budget, least, stages = budget_bytes(options, facts), options.least_layers, options.pipeline_parallel
    first = fullest_bytes(options, facts, least)
    if first > budget:
        return 0
    more = max(1, fullest_bytes(options, facts, least + stages) - first)
    layers = least + min((budget - first) // more, (most - least) // stages) * stages
    while layers > least and fullest_bytes(options, facts, layers) > budget:
        layers -= stages
    return layers
