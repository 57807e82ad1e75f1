"""The steps of a replay are the run's, under a launcher too."""

from pathlib import Path

import pytest

from benchmark.evidence.chain_links import EVIDENCE, read_chain
from benchmark.evidence.link_contents import EvaluationLink, StepLink
from benchmark.replay.recorded_config import Replacements, recorded_config
from benchmark.replay.replayed_steps import ReplayedSteps, Stretch, replay_steps
from benchmark.replay.starting_point import progress_at
from benchmark.training.checkpoints.checkpoint_folder import progress_as_json
from benchmark.training.engine.distributed import read_environment
from tests.benchmark.tiny import in_processes


def _replay(stretch: Stretch) -> ReplayedSteps | None:
    return replay_steps(stretch, read_environment())


@pytest.mark.slow
def test_steps_of_two_processes(run_dir: Path) -> None:
    chain, progress = read_chain(run_dir / EVIDENCE), progress_as_json(progress_at(run_dir, 4))
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    config = recorded_config(run_dir, Replacements(layout={"devices_per_node": 2}))
    found, nothing = in_processes(2, _replay, Stretch(config, 4, progress, 6, (6,)))
    assert nothing is None
    assert [type(link) for link in found.links] == [StepLink, StepLink, EvaluationLink]
    for link in found.links[:2]:
        recorded = chain.steps[link.step]
        assert (link.samples, link.tokens, link.learning_rate) == (
            recorded.samples,
            recorded.tokens,
            recorded.learning_rate,
        )
        assert link.loss == pytest.approx(recorded.loss, rel=2e-6)
    assert (len(found.seconds), found.machinery.layout["devices"]) == (2, 2)
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")} == before  # nothing of the folder is touched
