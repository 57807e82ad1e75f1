"""Steps on made-up tokens before the clock: they leave no trace."""

import dataclasses
from pathlib import Path

import pytest
import torch

from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.run_record.file_names import DIGESTS_FILE, checkpoint_path
from benchmark.run_record.phases import Phase, PhaseLog
from benchmark.training.engine.adam import Adam, local
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.warm_up import made_up_batches, training_micro_batches, warm_up
from foundation.errors import InputError
from foundation.file_formats.md5_list import read_list
from tests.benchmark.runs import events, loaded_state, mlperf, run, system_of
from tests.benchmark.tiny import SHORT, TINY, Inputs, in_processes

SYSTEM = system_of(4, warm_up_steps=2, pipeline_parallel=2, tensor_parallel=2)


@dataclasses.dataclass
class Traces:
    """What a warm-up has left."""

    changed: list[str]
    gradients: bool
    counters: set[float]
    progress_changed: bool
    phases: list[tuple[Phase, int]]
    updated: list[list[str]]
    """Parameters of each update by Adam."""


class _Heard:
    def __init__(self) -> None:
        self.phases: list[tuple[Phase, int]] = []

    def enter(self, phase: Phase, steps: int) -> None:
        self.phases.append((phase, steps))


def _traces(config: RunConfig) -> Traces:
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        before = {name: local(tensor).clone() for name, tensor in state.tensors().items()}
        progress = dataclasses.replace(state.progress)
        heard, updated, update = _Heard(), list[list[str]](), Adam.update

        def noting(adam: Adam, rate: float) -> None:
            assert rate == TINY.optimizer.lr
            updated.append(list(adam._parameters))
            update(adam, rate)

        setattr(Adam, "update", noting)  # noqa: B010
        done = warm_up(state, PhaseLog(heard))
        assert done is not None and done.endswith(" s: 2 steps and an evaluation on made-up tokens")
        return Traces(
            changed=[name for name, tensor in state.tensors().items() if not torch.equal(local(tensor), before[name])],
            gradients=any(value.grad is not None for value in state.parameters.values()),
            counters={float(one["step"]) for one in state.optimizer._inner.state.values()},
            progress_changed=state.progress != progress,
            phases=heard.phases,
            updated=updated,
        )


@pytest.mark.slow
def test_nothing_of_the_state_changes(inputs: Inputs, tmp_path: Path) -> None:
    """Adam's kernels run all the same: on a tensor of their own, with the run's options."""
    for found in in_processes(4, _traces, inputs.config(tmp_path, system=SYSTEM, precision="bf16")):
        assert found == Traces([], False, {4000.0}, False, [("warm-up", -1)] * 3, [["scratch"]] * 2)


@pytest.mark.slow
def test_a_run_is_the_same_to_the_bit_with_and_without(inputs: Inputs, tmp_path: Path) -> None:
    found = {}
    for steps in (0, 2):
        system = system_of(2, pipeline_parallel=2, warm_up_steps=steps)
        run_dir = tmp_path / str(steps)
        losses = run(inputs, run_dir, system, benchmark=SHORT, precision="bf16", save_interval=6)
        sums = read_list(checkpoint_path(run_dir, 6) / DIGESTS_FILE)
        found[steps] = losses, {name: md5 for name, md5 in sums.items() if name.endswith(".distcp")}
    assert found[0] == found[2]
    assert len(found[0][1]) == 2
    told = [event for event in events(tmp_path / "2", "message") if event["value"].startswith("warmed up in ")]
    (started,) = [event for event in mlperf(tmp_path / "2") if event["key"] == "run_start"]
    (line,) = told
    assert line["time_ms"] <= started["time_ms"]
    assert not [event for event in events(tmp_path / "0", "message") if "warmed up" in event["value"]]


def test_made_up_tokens_are_tokens(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path, system=system_of(1, warm_up_steps=1))
    batch, again = made_up_batches(TINY.model, config.system, 2)
    assert batch is again
    shape = (config.system.micro_batch_size, TINY.model.seq_length)
    assert batch.tokens.shape == batch.labels.shape == batch.loss_mask.shape == shape
    assert int(batch.tokens.min()) >= 0
    assert int(batch.tokens.max()) < TINY.model.vocab_size
    assert len(set(batch.tokens.flatten().tolist())) == batch.tokens.numel()
    assert batch.loss_mask.sum() == shape[0] * (shape[1] - 1)  # the last position has no label


def test_numbers_of_micro_batches() -> None:
    assert [training_micro_batches(*sizes) for sizes in ((1, 6), (1, 1), (8, 96))] == [2, 1, 16]
    with pytest.raises(InputError, match="warm_up_steps -1: expected at least 0; change --warm-up-steps"):
        system_of(1, warm_up_steps=-1)
    assert {system.warm_up_steps for system in SYSTEMS.values() if system.device == "cuda"} == {2}
