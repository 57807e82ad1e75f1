"""What happens before the first step, by stage, as one of 512 or 2,048 processes sees it.

python -m tests.speed.start [--ranks 512 2048] [--files 123520]

Measured are what needs no other machine: one rank's part in a world that sends nothing, questions to the store as small
worlds ask them, collectives of a small run. What is computed from that is marked "computed"; NCCL's part, the network
and the disk are not in it.
"""

import argparse
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.launch.endings import RunEnd
from benchmark.planning.dry_runs.fake_world import fake_tensors, fake_world
from benchmark.training import train as training
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.engine.train_state import empty_state
from checkpoint_convert.formats.megatron_checkpoint import own_part
from stage.outputs.digest import md5_file
from stage.outputs.manifest import ASKED_AT_ONCE, record_of
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes, write_inputs

SMALL_WORLDS = (2, 4, 8)
DIGESTED = 256 << 20
CHECKPOINT = 2.1e12
"""Bytes of one of a 175B run."""
ANSWER_S = 0.5e-3
"""What a shared disk is taken to need for one file's size."""
COLLECTIVES = ("all_gather_object", "broadcast_object_list", "barrier", "all_reduce", "broadcast", "new_group")


class _CountingStore(dist.Store):
    """A store that counts what it is asked."""

    def __init__(self, inner: dist.Store) -> None:
        super().__init__()
        self._inner, self.asked, self.answered_bytes = inner, 0, 0

    def set(self, key: str, value: Any) -> None:
        self.asked += 1
        self._inner.set(key, value)

    def get(self, key: str) -> bytes:
        self.asked += 1
        found = self._inner.get(key)
        self.answered_bytes += len(found)
        return found

    def wait(self, keys: list[str], *timeout: Any) -> None:
        self.asked += 1
        self._inner.wait(keys, *timeout)


def _join(path: str, late: bool) -> tuple[int, int]:
    """Questions to the store, and bytes of its answers, until a process of gloo's has joined and told all its host."""
    os.environ["TORCH_GLOO_LAZY_INIT"] = str(int(late))
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = _CountingStore(dist.FileStore(path, size))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    found: list[Any] = [None] * size
    dist.all_gather_object(found, "host")
    return store.asked, store.answered_bytes


def _print_join(folder: Path, ranks: list[int]) -> None:
    for late in (False, True):
        means = {}
        for size in SMALL_WORLDS:
            asked = in_processes(size, _join, str(folder / f"store_{late}_{size}"), late)
            means[size] = [sum(column) / size for column in zip(*asked, strict=True)]
        name = "connecting late" if late else "connecting at once"
        told = ", ".join(f"{mean[0]:.1f} of {size}" for size, mean in means.items())
        print(f"join        gloo, {name}: questions to rank 0's store by each process: {told}")
        for size in ranks:
            questions, answered = _extrapolated(size, means[SMALL_WORLDS[-1]], late)
            print(f"            computed of {size:,}: {questions:,.0f} in all, {answered / 1e9:,.3g} GB answered")


def _extrapolated(size: int, of_largest: list[float], late: bool) -> tuple[float, float]:
    """Questions and bytes of answers of a world of ``size``, from the means of the largest that was run.

    At once, a process waits for each other one and gets its answer, which has 8 bytes for each process; late, it asks
    for its neighbours alone.
    """
    asked, answered = of_largest
    if late:
        return size * asked, size * answered
    largest = SMALL_WORLDS[-1]
    return size * (2 * size + 1), size * size * (answered / largest + 8 * (size - largest))


def _print_states(ranks: list[int]) -> None:
    for size in ranks:
        system = dataclasses.replace(SYSTEMS["dgxh100_n64"], nodes=size // 8)
        config = RunConfig(dataclasses.replace(BENCHMARKS["gpt3_175b"], global_batch_size=2048), system)
        print(f"mesh        of {size:,} processes where a device is bound: a split for each axis (device_mesh.py)")
        for rank in (0, size - 1):
            found: _RankStart = _in_child(_start_of_rank, config, rank)
            print(f"            rank {rank}, without one: {found.groups:,} groups one by one, {found.mesh_s:.2f} s")
            print(f"empty state {found.empty_s:.2f} s for {found.tensors} tensors")
            print(f"load plan   {found.plan_s:.2f} s for {found.parts} parts to read, {found.bytes / 1e9:.2f} GB")


@dataclasses.dataclass(frozen=True)
class _RankStart:
    """What one rank does between joining and reading; seconds of mesh, empty state and load plan."""

    mesh_s: float
    empty_s: float
    plan_s: float
    groups: int
    tensors: int
    parts: int
    bytes: int


def _start_of_rank(config: RunConfig, rank: int) -> _RankStart:
    groups, new_group = 0, device_mesh.new_group

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal groups
        groups += 1
        return new_group(*arguments, **named)

    setattr(device_mesh, "new_group", counted)  # noqa: B010
    times = [time.perf_counter()]
    with fake_world(config.system, rank) as world:
        times.append(time.perf_counter())
        progress = starting_progress(config.benchmark, 0)
        state = empty_state(config.benchmark, config.system, config.precision, world, progress, within=fake_tensors())
        times.append(time.perf_counter())
        parts = [part for part, _ in map(own_part, state.tensors().values())]
        times.append(time.perf_counter())
        mesh_s, empty_s, plan_s = (after - before for before, after in itertools.pairwise(times))
        sizes = sum(part.numel() * 4 for part in parts)
        return _RankStart(mesh_s, empty_s, plan_s, groups, len(state.parameters), len(parts), sizes)


def _in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """A process of its own: PyTorch makes one fake world in each."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(function, arguments)


def _print_files(folder: Path, count: int) -> None:
    per_folder = 256
    for number in range(count):
        path = folder / "many_files" / f"array_{number // per_folder}" / f"{number % per_folder}.0"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    started = time.perf_counter()
    record = record_of(folder / "many_files", "many_files", None)
    seconds = time.perf_counter() - started
    slow = seconds + count * ANSWER_S / ASKED_AT_ONCE
    print(f"inputs      sizes of {record.files:,} files in {seconds:.2f} s, once")
    print(f"            computed, of a disk that answers in {1e3 * ANSWER_S} ms: {slow:.1f} s")


def _print_digests(folder: Path, ranks: list[int]) -> None:
    path = folder / "digested"
    path.write_bytes(bytes(DIGESTED))
    started = time.process_time()
    md5_file(path)
    rate = DIGESTED / (time.process_time() - started)
    told = ", ".join(f"{CHECKPOINT / size / rate:.1f} s of {size:,}" for size in ranks)
    print(f"verify      MD5 at {rate / 1e9:.2f} GB/s of a core; computed, of a run's own checkpoint, by each: {told}")


def _collectives(config: RunConfig) -> dict[str, int]:
    """Those of :data:`COLLECTIVES` that a process takes part in until the clock starts."""
    counts = Counter[str]()
    for name in COLLECTIVES:
        setattr(dist, name, _counting(counts, name, getattr(dist, name)))
    found: dict[str, int] = {}

    def begin(*_: Any) -> RunEnd:
        found.update(counts)
        return RunEnd("interrupted", "")

    setattr(training, "run_loop", begin)  # noqa: B010
    with contextlib.redirect_stdout(None):
        training.train(config)
    return found


def _counting(counts: Counter[str], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        counts[name] += 1
        return call(*arguments, **named)

    return counted


def _print_collectives(folder: Path, inputs: Inputs) -> None:
    config = inputs.config(folder / "run", SHORT, system_of(2, pipeline_parallel=2))
    (found, _) = in_processes(2, _collectives, config)
    print("restore     collectives of the host until the clock, of any size of world: ", end="")
    print(", ".join(f"{count} {name}" for name, count in sorted(found.items())))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.speed.start")
    parser.add_argument("--ranks", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--files", type=int, default=123_520)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _print_files(folder, options.files)
        _print_join(folder, options.ranks)
        _print_states(options.ranks)
        _print_digests(folder, options.ranks)
        _print_collectives(folder, write_inputs(folder))


if __name__ == "__main__":
    main()
