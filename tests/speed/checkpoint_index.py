"""Time rank 0's work on the index of a checkpoint, and the share of the interpreter that it leaves to training.

    python -m tests.speed.checkpoint_index [--system dgxh100_n64]

The ranks are made up: their boxes follow from the benchmark and the system. A thread does the work of rank 0, by DCP's
global plan and as a run does, while the main thread counts calls of a small function, as training calls kernels.
"""

import argparse
import itertools
import os
import pickle
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.system_config import System
from benchmark.config.systems import system_called
from benchmark.training.checkpoints.shard_index import RankShard, ShardBox, write_index
from benchmark.training.engine.adam import MOMENTS
from model.architectures import architecture_of
from model.sharding import names_of_chunk, parameter_shapes, placements

COUNTED_S = 3.0
"""Seconds in which the main thread's calls are counted while nothing else runs."""


def boxes_by_rank(system: System) -> list[list[ShardBox]]:
    """The boxes of each rank, copies included."""
    model = GPT3_175B.model
    architecture, shapes = architecture_of(model), parameter_shapes(model)
    shard = system.data_parallel // system.replicas
    mesh = (system.replicas, system.tensor_parallel, shard)
    stages = system.pipeline_parallel * system.pipeline_chunks
    ranks: list[list[ShardBox]] = []
    for pipeline, *coordinate in itertools.product(range(system.pipeline_parallel), *map(range, mesh)):
        boxes: list[ShardBox] = []
        for kind in ("model", *MOMENTS):
            for stage in range(pipeline, stages, system.pipeline_parallel):
                for name in names_of_chunk(shapes, architecture, model.num_layers, stage, stages):
                    shape = tuple(shapes[name])
                    sizes, offsets = _compute_local_shape_and_global_offset(
                        shape, mesh, coordinate, placements(name, architecture)
                    )
                    boxes.append(ShardBox(f"{kind}/{name}", shape, "float32", tuple(offsets), tuple(sizes), 0, 1))
        ranks.append(boxes)
    return ranks


def written_once(ranks: list[list[ShardBox]]) -> list[RankShard]:
    seen: set[tuple[str, tuple[int, ...]]] = set()
    shards = []
    for rank, boxes in enumerate(ranks):
        fresh = [box for box in boxes if (box.name, box.offsets) not in seen]
        seen.update((box.name, box.offsets) for box in fresh)
        shards.append(RankShard(f"__{rank}_0.distcp", fresh))
    return shards


def item_of(box: ShardBox) -> WriteItem:
    offsets = torch.Size(box.offsets)
    chunk = ChunkStorageMetadata(offsets, torch.Size(box.sizes))
    data = TensorWriteData(chunk, TensorProperties(torch.float32), torch.Size(box.shape))
    return WriteItem(MetadataIndex(box.name, offsets), WriteItemType.SHARD, tensor_data=data)


def calls_per_s(duration: Callable[[], bool]) -> float:
    """Count calls of a small function until ``duration`` returns False."""
    tensor, calls, started = torch.zeros(8), 0, time.perf_counter()
    while duration():
        for _ in range(100):
            tensor.add_(1)
        calls += 100
    return calls / (time.perf_counter() - started)


def report(name: str, work: Callable[[], None], usual: float) -> None:
    """Print the seconds of the work, those that its thread computed, and the calls that are left to training."""
    cpu_s: list[float] = []

    def timed() -> None:
        began_s = time.thread_time()
        work()
        cpu_s.append(time.thread_time() - began_s)

    thread = threading.Thread(target=timed)
    started, children_s = time.perf_counter(), sum(os.times()[2:4])
    thread.start()
    share = calls_per_s(thread.is_alive) / usual
    elapsed_s, children_s = time.perf_counter() - started, sum(os.times()[2:4]) - children_s
    print(
        f"{name}: {elapsed_s:.1f} s; its thread computes {cpu_s[0]:.2f} s, another process {children_s:.1f} s; "
        f"training has {share:.0%} of its calls"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", default="dgxh100_n64")
    system = system_called(parser.parse_args().system, "gpt3_175b")
    ranks = boxes_by_rank(system)
    shards = written_once(ranks)
    print(f"{system.name}: {len(ranks):,} ranks, {sum(len(shard.boxes) for shard in shards):,} boxes")
    pickles = [pickle.dumps(SavePlan(list(map(item_of, boxes)), planner_data={})) for boxes in ranks]
    messages = [msgspec.Raw(msgspec.msgpack.encode(shard)) for shard in shards]
    print(f"plans {sum(map(len, pickles)) / 1e6:.0f} MB, shards {sum(map(len, messages)) / 1e6:.0f} MB")
    deadline = time.perf_counter() + COUNTED_S
    usual = calls_per_s(lambda: time.perf_counter() < deadline)

    def by_dcp(folder: Path) -> None:
        plans = [pickle.loads(content) for content in pickles]
        planner = dcp.DefaultSavePlanner()
        plans, metadata = planner.create_global_plan(plans)
        for plan in plans:
            pickle.dumps(plan)
        results = [
            [WriteResult(item.index, 1, _StorageInfo(f"__{rank}_0.distcp", 0, 1)) for item in plan.items]
            for rank, plan in enumerate(plans)
        ]
        dcp.FileSystemWriter(folder).finish(metadata, results)

    counts = [len(shard.boxes) for shard in shards]
    with tempfile.TemporaryDirectory() as folder:
        report("DCP's global plan", lambda: by_dcp(Path(folder)), usual)
        report("the run's index", lambda: write_index(Path(folder), counts, messages), usual)


if __name__ == "__main__":
    main()
