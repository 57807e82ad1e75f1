"""Find by dry run how many layers a device holds."""

from functools import cache

from benchmark.planning.dry_runs.dry_run import RESERVE, dry_run
from benchmark.planning.dry_runs.rank_report import RankReport
from benchmark.preflight.slice_run.device_facts import DeviceFacts
from benchmark.preflight.slice_run.slice_config import SliceOptions, slice_config
from stage.errors import InputError

NOT_EVEN = {
    "cuda": "not even the fewest fit: raise --tensor-parallel, lower --micro-batch-size or choose --recompute full",
    "cpu": "not even the fewest fit: give a smaller --hidden-size, and --seq-length",
}


@cache
def counted_memory(options: SliceOptions, facts: DeviceFacts, layers: int) -> list[RankReport]:
    """Return the dry run's reports, one for each kind of rank. This takes some seconds."""
    return list(dry_run(slice_config(options, layers, facts.accelerator)).reports)


def fullest_bytes(options: SliceOptions, facts: DeviceFacts, layers: int) -> int:
    """Return the peak bytes of the fullest rank."""
    return max(one.peak_bytes for one in counted_memory(options, facts, layers))


def budget_bytes(options: SliceOptions, facts: DeviceFacts) -> int:
    """Return the bytes that a device has for the slice; CPU processes share one memory."""
    share = facts.memory_bytes if options.device == "cuda" else facts.memory_bytes // options.devices
    return round(share * (1 - RESERVE))


def chosen_layers(options: SliceOptions, facts: DeviceFacts) -> int:
    """Return the layers that were asked for, or as many as fit.

    Raises InputError if the layers asked for do not fit, with the number that does.
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
    """Return the largest number of layers that fits, at most ``most``, equal on all devices; 0 if not even the fewest
    fit.

    The number is guessed from the memory of one more layer on each device, then checked by dry run.
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
