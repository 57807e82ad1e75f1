"""The links of a run's steps, in several topologies."""

from pathlib import Path

import pytest

from benchmark.config.system_config import System
from benchmark.evidence.chain_links import Chain, read_chain
from benchmark.evidence.link_contents import CheckpointLink, EvaluationLink, StepLink
from benchmark.training.train import train
from tests.benchmark.runs import events, figures, run, system_of
from tests.benchmark.tiny import CPU, SHORT, Inputs, in_processes


def chain_of(inputs: Inputs, run_dir: Path, system: System) -> Chain:
    config = inputs.config(run_dir, SHORT, system, evidence=True, save_interval=4)
    assert in_processes(system.num_devices, train, config) == ["success"] * system.num_devices
    return read_chain(run_dir / "evidence.jsonl")


@pytest.fixture(scope="module")
def alone(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    return chain_of(inputs, tmp_path_factory.mktemp("alone") / "run", CPU)


def test_links_are_what_the_run_logged(alone: Chain) -> None:
    assert alone.problem is None
    order = [type(link.content).__name__.removesuffix("Link") for link in alone.links]
    expected = "Begin Step Step Step Evaluation Step Checkpoint Step Step Evaluation End"
    assert order == expected.split()
    steps, run_dir = alone.of(StepLink), alone.path.parent
    assert [link.step for link in steps] == [1, 2, 3, 4, 5, 6]
    assert [link.first_sample for link in steps] == [48000 + 12 * number for number in range(6)]
    noted = events(run_dir, "step")
    for name in ("loss", "grad_norm", "learning_rate", "skipped"):
        assert [getattr(link, name) for link in steps] == [event[name] for event in noted]
    for name in ("samples", "tokens", "weights", "projections"):
        assert len({getattr(link, name) for link in steps}) == 6
    assert [link.log_perplexity for link in alone.of(EvaluationLink)] == figures(run_dir)[2]
    assert alone.of(CheckpointLink)[0].state.weights == steps[3].weights


def test_evidence_changes_no_figure(alone: Chain, inputs: Inputs, tmp_path: Path) -> None:
    assert figures(alone.path.parent) == run(inputs, tmp_path / "run", benchmark=SHORT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [
        system_of(4, tensor_parallel=2, pipeline_parallel=2, micro_batch_size=3),
        system_of(2, replicas=2),
    ],
    ids=["tensor and pipeline", "replicas"],
)
def test_samples_and_starting_state_do_not_depend_on_the_topology(
    system: System, alone: Chain, inputs: Inputs, tmp_path: Path
) -> None:
    other = chain_of(inputs, tmp_path / "run", system)
    assert alone.begin is not None
    assert other.begin is not None
    assert other.begin.state == alone.begin.state
    for step, link in alone.steps.items():
        assert (other.steps[step].samples, other.steps[step].tokens) == (link.samples, link.tokens)
        assert other.steps[step].loss == pytest.approx(link.loss, rel=2e-6)
