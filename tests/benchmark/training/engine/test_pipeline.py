"""Passes: gradients, losses and evaluations are those of autograd, whatever the topology."""

import dataclasses
import gc
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.adam import gradient_of
from benchmark.training.engine.distributed import World, joined_world
from benchmark.training.engine.micro_batches import read_micro_batch
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.inputs import open_data
from model.gpt3 import mean_loss, token_losses
from model.passes import pass_sizes
from model.passes.chunk_pass import MicroBatch
from tests.benchmark.runs import loaded_state, plain_model, system_of
from tests.benchmark.tiny import Inputs, in_processes

SYSTEMS = {
    "uneven shards": system_of(3),
    "replicas": system_of(4, replicas=2, micro_batch_size=1),
    "pipeline of three": system_of(3, pipeline_parallel=3),
    "interleaved": system_of(2, pipeline_parallel=2, pipeline_chunks=2, micro_batch_size=2, recompute="selective"),
    "tensor, full recomputation": system_of(2, tensor_parallel=2, recompute="full"),
    "interleaved, tensor": system_of(4, tensor_parallel=2, pipeline_parallel=2, pipeline_chunks=2, micro_batch_size=2),
    "tensor, uneven shards": system_of(6, tensor_parallel=2, recompute="selective"),
}
"""One process alone: tests/model/passes/test_chunk_pass.py."""


def _batches(config: RunConfig, rank: int, parts: int, number: int) -> list[MicroBatch]:
    """Of a data-parallel rank: some of the same samples on every topology."""
    windows = open_data(config.data, config.benchmark, 17).training
    size = config.system.micro_batch_size
    ids = np.arange(48_000, 48_000 + number * size * parts).reshape(number, parts, size)[:, rank]
    return [read_micro_batch(windows, row, 100) for row in ids]


def _passes(config: RunConfig) -> dict[str, Any]:
    """Twice the loss and the gradients of a step, and an evaluation of an odd number of micro-batches. Without a
    pipeline each layer is a group of parameters of its own; runs of this size have one (test_topologies.py)."""
    pass_sizes.LEAST_WEIGHTS = 1
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        passes, results = state.pipeline, dict[str, Any]()
        for repeat in range(2):  # what is left of the first step must not reach into the second
            batches = _batches(config, world.data_rank, world.data_parallel, config.num_microbatches)
            loss = passes.train(batches, config.num_microbatches)
            torch.distributed.all_reduce(loss)
            state.tied_table.add_gradients(state.parameters)
            gradients = {name: _whole(gradient_of(value)) for name, value in state.parameters.items()}
            results[f"step {repeat}"] = loss.item(), {name: value.numpy() for name, value in gradients.items()}
            state.optimizer.clear_gradients()
        rows = _evaluated(config, world.data_parallel)
        total = passes.evaluate(_batches(config, world.data_rank, world.data_parallel, rows), rows)
        torch.distributed.all_reduce(total)
        results["evaluation"], results["rows"] = (
            total.tolist(),
            rows * config.system.micro_batch_size * world.data_parallel,
        )
        return results


def _whole(gradient: Tensor) -> Tensor:
    assert isinstance(gradient, DTensor)
    return gradient.full_tensor().clone()


@dataclasses.dataclass(frozen=True)
class Expected:
    loss: float
    gradients: dict[str, Any]
    evaluation: float
    """Mean of the losses that count, of as many rows as one process evaluates."""
    rows: int


@pytest.fixture(scope="module")
def by_autograd(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Expected:
    config = inputs.config(tmp_path_factory.mktemp("autograd"))
    model, number = plain_model(config), config.num_microbatches
    loss = torch.zeros(())
    for batch in _batches(config, 0, 1, number):
        loss = loss + mean_loss(token_losses(model(batch.tokens), batch.labels), batch.loss_mask) / number
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {name: gradient_of(value).numpy() for name, value in model.named_parameters()}
    rows = _evaluated(config, 1)
    with torch.no_grad():
        every = [
            (token_losses(model(batch.tokens), batch.labels) * batch.loss_mask).sum() / batch.loss_mask.sum()
            for batch in _batches(config, 0, 1, rows)
        ]
    return Expected(loss.item(), gradients, torch.stack(every).mean().item(), rows * config.system.micro_batch_size)


def _evaluated(config: RunConfig, data_parallel: int) -> int:
    """An odd number of micro-batches."""
    return 15 // (config.system.micro_batch_size * data_parallel) * 2 + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_gradients_are_those_of_autograd(name: str, inputs: Inputs, by_autograd: Expected, tmp_path: Path) -> None:
    system = SYSTEMS[name]
    for results in in_processes(system.num_devices, _passes, inputs.config(tmp_path, system=system)):
        expected = by_autograd.gradients
        for step in ("step 0", "step 1"):
            assert results[step][0] == pytest.approx(by_autograd.loss, rel=1e-6)
            assert set(results[step][1]) <= set(expected)
            for parameter, value in results[step][1].items():
                largest = np.abs(expected[parameter]).max()
                np.testing.assert_allclose(value, expected[parameter], rtol=0, atol=2e-6 * largest, err_msg=parameter)
        assert results["evaluation"][1] == results["rows"] * 15
        if results["rows"] == by_autograd.rows:
            total, counted = results["evaluation"]
            assert total / counted == pytest.approx(by_autograd.evaluation, rel=1e-6)


def _of_few_and_many(config: RunConfig) -> list[tuple[int, int, int]]:
    """What :func:`_most_alive` returns with few micro-batches, and with twice as many."""
    with joined_world(config.system, read_environment()) as world:
        sizes = (dataclasses.replace(config.benchmark, global_batch_size=size) for size in (8, 16))
        return [_most_alive(dataclasses.replace(config, benchmark=benchmark), world) for benchmark in sizes]


def _most_alive(config: RunConfig, world: World) -> tuple[int, int, int]:
    """Most bytes of tensors made by passes and alive at once in a step; in an evaluation; and left after both."""
    state, number = loaded_state(config, world), config.num_microbatches
    batches = _batches(config, world.data_rank, world.data_parallel, number)
    with _Living() as living:
        state.pipeline.train(batches, number)  # makes gradients, which stay
        state.optimizer.clear_gradients()
        gc.collect()
        gc.disable()  # as in a run: what is alive is what nobody has let go of, whenever garbage is collected
        start = living.bytes
        living.most = start
        state.pipeline.train(batches, len(batches))
        train_most, living.most = living.most - start, living.bytes
        state.pipeline.evaluate(iter(batches), number)
        gc.enable()
        gc.collect()
        for _ in range(100):  # Gloo's thread lets go of a message a moment after the wait for it has ended
            if living.bytes <= start:
                break
            time.sleep(0.01)
        return train_most, living.most - start, living.bytes - start


class _Living(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the bytes of storages that operations make, while they live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(result):
            if isinstance(leaf, Tensor) and not isinstance(leaf, DTensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in self._known:
                    self._known.add(storage._cdata)
                    self.bytes += storage.nbytes()
                    weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        self.most = max(self.most, self.bytes)
        return result

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.bytes -= size


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_micro_batches(inputs: Inputs, tmp_path: Path) -> None:
    system = system_of(4, pipeline_parallel=2, pipeline_chunks=2, tensor_parallel=2, micro_batch_size=1)
    results = in_processes(4, _of_few_and_many, inputs.config(tmp_path, system=system))
    scalars = 64 * 8  # of each of 8 more micro-batches the loss, and its share of small tables
    under_way = 2 * 16 * 40 * 4  # two messages, a quarter of what one of each micro-batch would be: kept until they are
    # sent, which depends on the other stage; the same with few and many
    for (train, evaluate, left), (more_train, more_evaluate, more_left) in results:
        assert more_train <= train + under_way + scalars
        assert more_evaluate <= evaluate + under_way + scalars
        assert more_left <= left + scalars
        assert train > 20 * scalars
