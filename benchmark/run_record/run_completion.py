"""Complete the files of a run that reached its target and was killed before its summary was on the disk.

The MLPerf log is the record: once its run_stop says success, the run has ended, and no step is done again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from benchmark.run_record.endings import finished_status
from benchmark.run_record.file_names import CONFIG_FILE, result_path
from benchmark.run_record.small_files import read_object
from benchmark.run_record.summary import Summary, write_summary

TOKEN = b":::MLLOG "
PROGRESS_KEYS = ("epoch_num", "samples_count")
"""Metadata that say how far training was: in tokens, or in samples."""
AFTER_RUN_STOP = ("train_samples", "trained_samples", "epoch_stop")
"""Keys of the entries that follow run_stop."""
MOST_BYTES = 1 << 28


def complete_run(run_dir: Path) -> None:
    """Write ``summary.json``, and the entries that follow run_stop, if the log says that the run reached its target.

    Do nothing for any other run. Called by whoever holds the run, while nothing of it runs. Raises OSError if the disk
    does not say.
    """
    config = None if finished_status(run_dir) is not None else read_object(run_dir / CONFIG_FILE)
    if config is None or not isinstance(config.get("result_number"), int):
        return
    path = result_path(run_dir, config["result_number"])
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES)
    except FileNotFoundError:
        return
    if b'"run_stop"' not in content:
        return
    events = _events(content)
    stop = next((event for event in reversed(events) if event["key"] == "run_stop"), None)
    if stop is None or stop["metadata"].get("status") != "success":
        return
    try:
        summary = _summary(events, stop, config, path)
        _append_missing(path, content, events, stop)
    except (KeyError, TypeError, ValueError, IndexError):  # the log is damaged
        return
    write_summary(run_dir, summary)


def _events(content: bytes) -> list[dict[str, Any]]:
    """Return the entries of whole lines."""
    events = []
    for line in content.split(b"\n")[:-1]:
        try:
            event = json.loads(line[len(TOKEN) :]) if line.startswith(TOKEN) else None
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("metadata"), dict) and "key" in event:
            events.append(event)
    return events


def _progress(event: dict[str, Any]) -> tuple[str, int]:
    """Return the key and the number by which an entry says how far training was."""
    for key in PROGRESS_KEYS:
        if key in event["metadata"]:
            return key, int(event["metadata"][key])
    raise ValueError(f"{event['key']}: no {' or '.join(PROGRESS_KEYS)}")


def _summary(events: list[dict[str, Any]], stop: dict[str, Any], config: dict[str, Any], path: Path) -> Summary:
    """Build the summary. Raises KeyError, TypeError, ValueError or IndexError for a damaged log."""
    seq_length = int(config["benchmark"]["model"]["seq_length"])
    evaluations = []
    for event in events:
        if event["key"] == "eval_accuracy":
            key, number = _progress(event)
            tokens = number if key == "epoch_num" else number * seq_length
            evaluations.append({"trained_tokens": tokens, "log_perplexity": float(event["value"])})
    begins = [event for event in events if event["key"] in ("run_start", "restart")]
    restarts = [event for event in begins if event["key"] == "restart"]
    trained_tokens = evaluations[-1]["trained_tokens"]
    tokens_before = int(restarts[-1]["metadata"]["step"]) if restarts else 0
    run_s = max(0.001, (stop["time_ms"] - begins[-1]["time_ms"]) / 1000)
    return Summary(
        status="success",
        seed=int(config["data"]["seed"]),
        trained_tokens=int(trained_tokens),
        trained_samples=int(trained_tokens) // seq_length,
        evaluations=evaluations,
        run_s=run_s,
        tokens_per_s=(trained_tokens - tokens_before) / run_s,
        first_loss_s=None,
        restarts=len(restarts) and int(restarts[-1]["value"]),
        result=str(path),
    )


def _append_missing(path: Path, content: bytes, events: list[dict[str, Any]], stop: dict[str, Any]) -> None:
    """Append the entries that follow run_stop, as far as they are missing, with its time. Raises OSError."""
    key, number = _progress([event for event in events if event["key"] == "eval_accuracy"][-1])
    present = {event["key"] for event in events[events.index(stop) :]}
    lines = []
    for name in AFTER_RUN_STOP:
        is_interval = name == "epoch_stop"
        metadata: dict[str, Any] = {"file": "benchmark/run_record/run_completion.py", "lineno": 0}
        if is_interval:
            metadata[key] = number
        record = {
            "namespace": "",
            "time_ms": stop["time_ms"],
            "event_type": "INTERVAL_END" if is_interval else "POINT_IN_TIME",
            "key": name,
            "value": None if is_interval else number,
            "metadata": metadata,
        }
        if name not in present:
            lines.append(TOKEN + json.dumps(record).encode() + b"\n")
    handle = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(handle, content.rfind(b"\n") + 1)  # a line that a killed process has begun
        os.lseek(handle, 0, os.SEEK_END)
        for line in lines:
            os.write(handle, line)
        os.fsync(handle)
    finally:
        os.close(handle)
