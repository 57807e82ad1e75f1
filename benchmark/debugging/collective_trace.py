"""PyTorch's flight recorder: which collectives a process has begun, and which of them it still waits in.

PyTorch 2.13 records the newest 2,000 of all backends, gloo's too. NCCL's are also dumped by PyTorch itself when one
runs into its time limit.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

NCCL_BUFFER = 2000
MOST_BYTES = 64 << 20
"""Of a trace; 2,000 entries take 1 MB."""


@dataclass(frozen=True)
class PendingCollective:
    name: str
    """Such as "gloo:all_reduce"."""
    group: str
    """Number and name of its process group."""
    number: int
    """Which collective of its group it is: processes that wait in different ones have lost each other."""
    sizes: tuple[tuple[int, ...], ...]
    """Shapes of its inputs."""

    def line(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) or "1" for shape in self.sizes)
        return f"{self.name} number {self.number} of group {self.group}, shape {shapes}"


def trace() -> bytes:
    """All that is recorded, as JSON; empty where this PyTorch does not tell. For a thread: it needs no answer from a
    device, but the interpreter's lock."""
    recorder = torch._C._distributed_c10d
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        dump = getattr(recorder, name, None)
        if dump is not None:
            found: bytes = dump(True, False)
            if b'"record_id"' in found:
                return found[:MOST_BYTES]
    return b""


def pending_collectives(recorded: bytes) -> list[PendingCollective]:
    """Those of a trace that were begun and are not done, the oldest first."""
    try:
        entries = json.loads(recorded)["entries"]
        return [_pending(entry) for entry in entries if not entry["retired"] and entry["state"] != "completed"]
    except (ValueError, KeyError, TypeError):
        return []


def _pending(entry: Mapping[str, Any]) -> PendingCollective:
    number = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
    shapes = tuple(tuple(map(int, shape)) for shape in entry["input_sizes"])
    return PendingCollective(str(entry["profiling_name"]), " ".join(entry["process_group"]), int(number), shapes)


def recorder_environment(folder: Path) -> dict[str, str]:
    """Variables with which NCCL's process groups record, and dump to ``folder`` when one runs into its time limit.

    To be set before the first process group. PyTorch appends the rank to the name.
    """
    prefix = str(folder / "flight_recorder_rank_")
    return {
        "TORCH_FR_BUFFER_SIZE": str(NCCL_BUFFER),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": prefix,
    }
