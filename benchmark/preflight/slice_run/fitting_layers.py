"""How many layers a device holds, by the dry run."""

from functools import cache

from benchmark.planning.dry_runs.dry_run import RESERVE, RankReport, dry_run
from benchmark.preflight.slice_run.device_facts import DeviceFacts
from benchmark.preflight.slice_run.slice_config import SliceOptions, slice_config
from stage.errors import InputError

NOT_EVEN = {
    "cuda": "not even the fewest fit: raise --tensor-parallel, lower --micro-batch-size or choose --recompute full",
    "cpu": "not even the fewest fit: give a smaller --hidden-size, and --seq-length",
}


@cache
def counted_memory(options: SliceOptions, facts: DeviceFacts, layers: int) -> list[RankReport]:
    """Return the dry run's reports, one for each kind of rank. Takes some seconds."""
    return list(dry_run(slice_config(options, layers, facts.accelerator)).reports)


def fullest_bytes(options: SliceOptions, facts: DeviceFacts, layers: int) -> int:
    """Return the peak of the rank that holds most."""
    return max(one.peak_bytes for one in counted_memory(options, facts, layers))


def budget_bytes(options: SliceOptions, facts: DeviceFacts) -> int:
    """Return what a device has for the slice; CPU processes share one memory."""
    share = facts.memory_bytes if options.device == "cuda" else facts.memory_bytes // options.devices
    return round(share * (1 - RESERVE))


def chosen_layers(options: SliceOptions, facts: DeviceFacts) -> int:
    """Return the layers that were asked for, or as many as fit.

    Raises InputError where those do not fit, with the number that does.
    """
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
    """Return the layers that fit, at most ``most``, as many on each device; 0 where not even the fewest do.

    They are guessed by what one more on each device takes, then counted.
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
