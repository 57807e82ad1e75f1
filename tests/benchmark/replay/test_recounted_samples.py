"""Samples and tokens counted again without a model."""

import dataclasses
from pathlib import Path

from benchmark.evidence.chain_links import EVIDENCE, read_chain
from benchmark.evidence.link_contents import StepLink
from benchmark.replay.recorded_config import Replacements, recorded_config
from benchmark.replay.recounted_samples import sample_deviations


def test_samples_of_an_honest_and_of_another_run(run_dir: Path) -> None:
    config, links = recorded_config(run_dir, Replacements()), read_chain(run_dir / EVIDENCE).of(StepLink)
    assert len(links) == 6
    assert list(sample_deviations(config, links)) == []
    other = config.changed(seed=18)
    found = list(sample_deviations(other, links))
    assert [(one.step, one.what) for one in found] == [(n, what) for n in range(1, 7) for what in ("samples", "tokens")]
    shifted = [dataclasses.replace(links[0], first_sample=10**12), dataclasses.replace(links[1], first_sample=-5)]
    assert [one.what for one in sample_deviations(config, shifted)] == ["first sample", "first sample"]
