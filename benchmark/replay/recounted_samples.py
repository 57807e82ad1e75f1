"""Which samples and tokens the steps of a run read, counted again without a model, on one core."""

from collections.abc import Iterator, Sequence

from benchmark.config.run_config import RunConfig
from benchmark.evidence.link_contents import StepLink
from benchmark.evidence.mismatch import Mismatch
from benchmark.training.guards.witness.witnessed_samples import WitnessedSamples
from benchmark.training.inputs import open_data


def sample_deviations(config: RunConfig, links: Sequence[StepLink]) -> Iterator[Mismatch]:
    """Links whose samples or tokens are not those of the data, in the order of the run's seed."""
    assert config.data.seed is not None
    windows = WitnessedSamples(open_data(config.data, config.benchmark, config.data.seed).training)
    for link in links:
        samples = range(link.first_sample, link.first_sample + config.benchmark.global_batch_size)
        if not 0 <= samples.start <= samples.stop <= len(windows):
            due = f"0 to {len(windows)} are there"
            yield Mismatch(link.step, "first sample", str(link.first_sample), due)
            continue
        for sample in samples:
            windows.window(sample)
        found = [f"{number:016x}" for number in windows.take(samples)]
        for name, recorded, other in zip(("samples", "tokens"), (link.samples, link.tokens), found, strict=True):
            if recorded != other:
                yield Mismatch(link.step, name, recorded, other, "these are exact")
