"""GPUs with one hardware queue can do what ranks hand over, whatever takes how long."""

import pytest
import torch
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.planning.fake_device.fake_world import fake_world
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.engine.train_state import empty_state
from benchmark.training.step import accumulate
from model.passes import pass_sizes
from model.passes.chunk_pass import MicroBatch
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import TINY
from tests.benchmark.training.engine.hardware_queue import COMPUTE, COPIES, Command, Message, Recorder, never_begun

A, A2, B = (Message("all-gather", (0, 1), number, 1) for number in range(3))
FIRST = [Command("a", None, (A,)), Command("a", None, (A2,)), Command("b", None, (B,)), Command(COMPUTE, 2)]
SECOND = [Command("b", None, (B,)), Command(COMPUTE, 0), Command("a", 1, (A,)), Command("a", None, (A2,))]


def test_a_message_behind_one_of_its_own_stream_locks_one_queue_alone() -> None:
    assert never_begun([FIRST, SECOND], one_queue=False) == [[], []]
    assert never_begun([FIRST, SECOND], one_queue=True) == [FIRST[1:], SECOND[1:]]
    assert never_begun([FIRST, FIRST], one_queue=True) == [[], []]


@pytest.mark.parametrize("one_queue", [True, False])
def test_messages_that_differ_lock_every_queue(one_queue: bool) -> None:
    ranks = [[Command("a", None, (one,)), Command(COMPUTE, 0)] for one in (A, A._replace(elements=2))]
    assert never_begun(ranks, one_queue=one_queue) == [ranks[0][1:], ranks[1][1:]]


def test_a_copied_message_holds_up_products_in_one_queue() -> None:
    """A product comes after a message whose partner never comes: beside NCCL's kernel it begins; behind copies only
    where streams have queues of their own. So runs with copy engines have several (runtime_variables.py)."""
    product = Command(COMPUTE)
    nccl = [Command("nccl", None, (A,)), product]
    copied = [Command(COPIES, None, (A,)), Command(COPIES), Command(COPIES, None, (A2,)), product]
    assert never_begun([nccl], one_queue=True) == [[]]
    assert never_begun([copied], one_queue=True) == [copied[1:]]
    assert never_begun([copied], one_queue=False) == [copied[1:-1]]


def _handed_over(system: System, rank: int, copied: bool) -> list[Command]:
    """Two steps and an evaluation of one rank."""
    _clear_sharding_prop_cache()  # type: ignore[no-untyped-call] # as in tests/model/passes/on_mesh.py
    config, recorder = RunConfig(benchmark=TINY, system=system), Recorder()
    ones = torch.ones(system.micro_batch_size, TINY.model.seq_length, dtype=torch.int64)
    batch = MicroBatch(ones, ones, ones.float())
    with fake_world(system, rank) as world:
        state = empty_state(config.benchmark, config.system, config.precision, world, starting_progress(TINY, 17))
        if copied:
            state.pipeline._chunks[0]._group._copies_gathers = True
        with recorder.recording():
            for _ in range(2):
                accumulate(state, [batch] * config.num_microbatches)
                recorder.host_waits()
                state.optimizer.clear_gradients()
            torch.distributed.all_reduce(state.pipeline.evaluate([batch] * 3, 3))
            recorder.host_waits()
    return recorder.commands


@pytest.mark.parametrize(
    ("system", "copied"),
    [
        (system_of(8, tensor_parallel=2, pipeline_parallel=2, pipeline_chunks=2, micro_batch_size=2), False),
        (system_of(6, tensor_parallel=2, pipeline_parallel=3, micro_batch_size=4), True),
        (system_of(8, tensor_parallel=2, replicas=2, micro_batch_size=1, shard_gradients=True), False),
    ],
    ids=[
        "tensor 2, pipeline 2 x 2, data 2",
        "tensor 2, pipeline 3, copied gathers",
        "tensor 2, data 2 x 2, gradients summed by micro-batch",
    ],
)
def test_no_rank_waits_for_ever(system: System, copied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_sizes, "LEAST_WEIGHTS", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small tensors take ten times as long with two
    ranks = [_handed_over(system, rank, copied) for rank in range(system.num_devices)]
    torch.set_num_threads(threads)
    kinds = {message.kind for command in ranks[0] for message in command.messages}
    expected = {"barrier" if copied else "all-gather", "reduce-scatter", "all-reduce"}
    assert kinds >= (expected | {"send"} if system.pipeline_parallel > 1 else expected)
    for one_queue in (True, False):
        assert never_begun(ranks, one_queue=one_queue) == [[]] * system.num_devices
