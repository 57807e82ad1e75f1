"""The packaged table of published runs."""

import re

from benchmark.results.published_runs import PUBLISHED_RUNS, published_systems
from tests.support import REPOSITORY

ROW = re.compile(r"(?m)^\| (\d\.\d) \| (\S+) / (\S+) \| (\d+) x .*?\| (\d+) \| \d+ \| \d+ \| ([\d., ]+) \|")
LISTED = REPOSITORY.parent / "shared" / "real_logs" / "published_results.md"


def test_it_has_all_systems_and_runs() -> None:
    systems = published_systems()
    assert len(systems) == 42
    assert sum(len(one.runs) for one in systems) == 126
    assert {one.round for one in systems} == {"3.0", "3.1", "4.0", "4.1"}
    assert PUBLISHED_RUNS.stat().st_size < 200_000


def test_times_and_speeds_are_the_published_ones() -> None:
    """docs/facts/mlperf_review.md 6.1, 6.3."""
    (eos,) = [one for one in published_systems() if one.system == "eos_n64_ngc24.09_nemo"]
    assert (eos.submitter, eos.round, eos.accelerators, eos.batch_size) == ("NVIDIA", "4.1", 512, 2048)
    assert round(eos.score_minutes, 2) == 49.80
    assert round(eos.tokens_per_s_per_accelerator) == 790
    (trillium,) = [one for one in published_systems() if one.system == "cloud-tpu-trillium-1024-maxtext"]
    assert round(trillium.score_minutes, 2) == 50.63
    if LISTED.is_file():
        listed = ROW.findall(LISTED.read_text())
        assert len(listed) == 40
        by_name = {(one.round, one.submitter, one.system): one for one in published_systems()}
        for round_, submitter, name, devices, batch, minutes in listed:
            one = by_name[round_, submitter, name]
            assert (one.accelerators, one.batch_size) == (int(devices), int(batch))
            assert sorted(f"{run.minutes:.2f}" for run in one.runs) == sorted(minutes.split(", "))


def test_every_run_ends_inside_the_target() -> None:
    """docs/facts/mlperf_review.md 6.5: all before the last value are above 2.69."""
    for system in published_systems():
        for run in system.runs:
            values = [value for _, value in run.evaluations]
            assert 2.6 < values[-1] <= 2.69
            assert min(values[:-1]) > 2.69
