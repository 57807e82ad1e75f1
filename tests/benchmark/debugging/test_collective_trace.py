"""PyTorch's flight recorder, read while a process waits for one that does not come."""

import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from benchmark.debugging.collective_trace import (
    PendingCollective,
    pending_collectives,
    recorder_environment,
    trace,
)
from tests.benchmark.tiny import in_processes


def _wait_for_the_other(has_seen: Path) -> list[PendingCollective]:
    """Rank 1 comes to the second sum once rank 0 has seen itself wait for it, and made the file."""
    dist.init_process_group("gloo", init_method="env://")
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(4))
    seen: list[list[PendingCollective]] = []
    if rank == 0:
        thread = threading.Thread(target=lambda: seen.append(_once_it_waits(has_seen)))
        thread.start()
        dist.all_reduce(torch.ones(2, 3))
        thread.join()
    else:
        while not has_seen.exists():
            time.sleep(0.01)
        seen.append(pending_collectives(trace()))
        dist.all_reduce(torch.ones(2, 3))
    dist.barrier()
    return seen[0]


def _once_it_waits(has_seen: Path) -> list[PendingCollective]:
    while True:
        found = pending_collectives(trace())
        if [one.number for one in found] == [2]:  # the first sum may be noted as done a moment later than it is
            has_seen.touch()
            return found
        time.sleep(0.01)


def test_what_a_process_waits_in_is_told(tmp_path: Path) -> None:
    waits, does_not = in_processes(2, _wait_for_the_other, tmp_path / "has seen")
    (one,) = waits
    assert (one.name, one.number, one.sizes) == ("gloo:all_reduce", 2, ((2, 3),))
    assert one.line() == "gloo:all_reduce number 2 of group 0 default_pg, shape 2x3"
    assert does_not == []


def test_damaged_traces_tell_nothing() -> None:
    for recorded in (b"", b"{", b"[]", b'{"entries": [{}]}', b'{"entries": 3}'):
        assert pending_collectives(recorded) == []


def test_variables_for_nccl() -> None:
    found = recorder_environment(Path("/run/attempts/0001"))
    assert found["TORCH_FR_DUMP_TEMP_FILE"] == "/run/attempts/0001/flight_recorder_rank_"
    assert found["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
