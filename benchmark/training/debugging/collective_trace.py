"""Read PyTorch's flight recorder: the collectives that a process has begun, and those still pending.

PyTorch 2.13 records the newest 2,000 collectives of all backends, gloo's too. PyTorch itself also dumps NCCL's
collectives when one of them exceeds its time limit.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmark.training.liveness.heartbeat import Heartbeat
from foundation.outputs.publish import write_text

NCCL_BUFFER = 2000
MOST_BYTES = 64 << 20
"""Largest trace in bytes; 2,000 entries take 1 MB."""
LOOK_S = 0.25


def trace() -> bytes:
    """Return all recorded collectives as JSON; empty if this PyTorch does not tell them. Call this from a thread: it
    needs the interpreter's lock, but no answer from a device."""
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        dump = getattr(torch._C._distributed_c10d, name, None)
        if dump is not None:
            records: bytes = dump(True, False)
            if b'"record_id"' in records:
                return records[:MOST_BYTES]
    return b""


def pending_collectives(recorded: bytes) -> list[str]:
    """Return a line for each collective of a trace that has begun and is not done, the oldest first.

    Each line has the collective's number within its group: processes that wait in different ones have lost each other.
    """
    try:
        lines = []
        for entry in json.loads(recorded)["entries"]:
            if entry["retired"] or entry["state"] == "completed":
                continue
            number = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
            shapes = ", ".join("x".join(map(str, shape)) or "1" for shape in entry["input_sizes"])
            group = " ".join(entry["process_group"])
            lines.append(f"{entry['profiling_name']} number {number} of group {group}, shape {shapes}")
        return lines
    except (ValueError, KeyError, TypeError):
        return []


@contextmanager
def explaining(heartbeat: Heartbeat, path: Path) -> Iterator[None]:
    """Write pending collectives to ``path``, a list of lines as JSON, once the watchdog asks for them (``heartbeat``).

    A thread answers while the main thread waits for a device or another process, but not while the main thread holds
    the interpreter's lock.
    """
    is_over = threading.Event()

    def explain() -> None:
        while not is_over.wait(LOOK_S):
            if heartbeat.is_asked():
                write_text(path, json.dumps(pending_collectives(trace())) + "\n")
                return

    threading.Thread(target=explain, name="hang explainer", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def recorder_environment(folder: Path) -> dict[str, str]:
    """Return variables with which NCCL's process groups record, and dump to ``folder`` when a collective exceeds its
    time limit.

    Set them before the first process group. PyTorch appends the rank to the name.
    """
    return {
        "TORCH_FR_BUFFER_SIZE": str(NCCL_BUFFER),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / "flight_recorder_rank_"),
    }
