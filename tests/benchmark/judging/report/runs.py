"""Folders of small made-up runs, for what reads them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_MS = 1_700_000_000_000
BATCH, LENGTH, INTERVAL = 16, 128, 4
TOKENS_PER_STEP = BATCH * LENGTH
HEAD = {
    "submission_benchmark": "gpt3_rehearsal",
    "submission_org": "ACME",
    "submission_division": "closed",
    "submission_status": "research",
    "submission_platform": "CPU-2",
    "seed": 7,
    "global_batch_size": BATCH,
    "max_sequence_length": LENGTH,
    "opt_base_learning_rate": 1e-3,
}
CONFIG = {
    "result_number": 0,
    "precision": "bf16",
    "system": {"name": "cpu_p2", "device": "cpu", "nodes": 1, "devices_per_node": 2},
}


@dataclass
class MadeRun:
    """Writes log and events with a clock of its own."""

    folder: Path
    head: dict[str, Any] = field(default_factory=lambda: dict(HEAD))
    now_ms: int = START_MS
    steps: int = 0
    _log: list[str] = field(default_factory=list)
    _events: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self.emit("init_start", kind="INTERVAL_START")
        for key, value in self.head.items():
            self.emit(key, value)
        self.wait(2.0)
        self.emit("init_stop", kind="INTERVAL_END")
        self.emit("run_start", kind="INTERVAL_START")

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def emit(
        self, key: str, value: Any = None, *, kind: str = "POINT_IN_TIME", mlperf: bool = True, **fields: Any
    ) -> None:
        record = {"time_ms": self.now_ms, "key": key, "kind": kind, "value": value, **fields}
        self._events.append(json.dumps(record))
        if mlperf:
            metadata = {"file": "loop.py", "lineno": 1, **fields}
            line = {"namespace": "", "time_ms": self.now_ms, "event_type": kind, "key": key, "value": value}
            self._log.append(f":::MLLOG {json.dumps({**line, 'metadata': metadata})}")

    def step(self, *, seconds: float = 0.5, loss: float = 3.0) -> None:
        self.wait(seconds)
        self.steps += 1
        tokens = self.steps * TOKENS_PER_STEP
        self.emit(
            "step", mlperf=False, trained_tokens=tokens, loss=loss, grad_norm=1.25, learning_rate=1e-3, step_s=seconds,
            tflops_per_device=0.5,
        )  # fmt: skip

    def evaluate(self, value: float, *, seconds: float = 1.5) -> None:
        tokens = self.steps * TOKENS_PER_STEP
        self.emit("eval_start", kind="INTERVAL_START", epoch_num=tokens)
        self.wait(seconds)
        self.emit("eval_accuracy", value, epoch_num=tokens)
        self.emit("eval_stop", kind="INTERVAL_END", epoch_num=tokens)
        self.emit("evaluation", mlperf=False, trained_tokens=tokens, log_perplexity=value, seconds=seconds)

    def save(self, *, seconds: float = 0.25) -> None:
        self.wait(seconds)
        self.emit("checkpoint", mlperf=False, steps=self.steps, seconds=seconds)

    def restart(self, *, steps: int, waiting: float) -> None:
        """Go on from the checkpoint at ``steps`` after some time without a process."""
        self.wait(waiting)
        self.steps = steps
        self.emit("inputs", {"/data/train_0": {"md5": {"train_0.bin": "0" * 32}}}, mlperf=False)
        self.emit("restart", 1, step=steps * TOKENS_PER_STEP)

    def end(self) -> Path:
        self.emit("run_stop", kind="INTERVAL_END", status="success")
        self.emit("train_samples", self.steps * TOKENS_PER_STEP)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "result_0.txt").write_text("\n".join(self._log) + "\n")
        (self.folder / "events.jsonl").write_text("\n".join(self._events) + "\n")
        (self.folder / "config.json").write_text(json.dumps(CONFIG))
        return self.folder


def write_run(folder: Path, values: Sequence[float] = (5.5, 3.5, 2.43), **head: Any) -> Path:
    """A run that evaluates to ``values``, every four steps, and saves before each evaluation but the first."""
    run = MadeRun(folder, head={**HEAD, **head})
    run.begin()
    for number, value in enumerate(values):
        for _ in range(INTERVAL):
            run.step(loss=value)
        if number:
            run.save()
        run.evaluate(value)
    return run.end()


def restarted_run(folder: Path) -> Path:
    """Eight steps that count, three lost ones of 0.4 s, 30 s without a process, and a second nobody tells of."""
    made = MadeRun(folder)
    made.begin()
    for _ in range(4):
        made.step()
    made.evaluate(5.5)
    made.save()
    for _ in range(3):
        made.step(seconds=0.4)
    made.restart(steps=4, waiting=30.0)
    made.wait(1.0)
    for _ in range(4):
        made.step()
    made.evaluate(2.43)
    return made.end()
