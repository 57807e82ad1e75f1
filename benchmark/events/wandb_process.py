"""The process that brings a run's events to W&B: ``python -m benchmark.events.wandb_process RUN_DIR MODE``.

It reads ``RUN_DIR/events.jsonl`` from where it stopped the last time, until its standard input ends, then the rest.
So nothing is lost that a killed process did not get rid of, and an attempt at a run sends what the one before it could
not. The curve goes on under the same id (``RUN_DIR/wandb/state.json``). Of steps and evaluations that are done again
after a restart, the first value stays: what W&B has cannot be replaced.
"""

import contextlib
import json
import os
import secrets
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmark.events.tensorboard import SCALARS
from stage.errors import InputError
from stage.json_files import UNREADABLE, read_json
from stage.optional_packages import import_optional
from stage.outputs.lock import only_one_in
from stage.outputs.publish import write_text

POLL_S = 1.0
LAG_S = 60.0
"""W&B writes and sends what it was given some seconds later. What it was given in so many is given again if this
process dies."""
FINISH_S = 60.0
"""For sending what is left at the end; a network that is gone must not keep a process on the node."""
INIT_S = 120.0
AXES = {"train/*": "trained_tokens", "speed/*": "trained_tokens", "eta/*": "trained_tokens",
        "checkpoint/*": "trained_tokens", "restarts": "trained_tokens", "validation/*": "evaluated_tokens"}  # fmt: skip
"""Metrics, and over which one they are drawn."""
MORE = {
    "step": {**SCALARS["step"], "memory_gib": "speed/memory_gib", "skipped": "train/skipped"},
    "evaluation": SCALARS["evaluation"],
    "checkpoint": {"seconds": "checkpoint/pause_s"},
    "checkpoint_written": {"seconds": "checkpoint/write_s"},
    "eta": {"seconds": "eta/target_s", "seconds_low": "eta/target_low_s", "seconds_high": "eta/target_high_s"},
}
"""Which fields of which events, and what they are called there."""
TOLD = {"message", "incident", "after_checkpoint"}
"""Events that become lines for people, in a file of the W&B run."""
MOST_CHARACTERS = 2000
"""Of such a line."""


@dataclass(frozen=True)
class WandbState:
    """What a restart has to know; ``state.json``."""

    id: str
    offset: int = 0
    """Bytes of ``events.jsonl`` that are done with."""
    iteration: int = 0
    """The last step that was given to W&B."""
    evaluated_tokens: int = 0
    """The last evaluation, likewise."""
    opened: int = 0
    """How often the curve was begun or gone on with."""


class WandbCurve:
    """Gives events to a run of W&B's."""

    def __init__(self, wandb: Any, run_dir: Path, mode: str) -> None:
        self._wandb, self._run_dir, self._mode = wandb, run_dir, mode
        self._folder = run_dir / "wandb"
        before = read_state(self._folder) or WandbState(secrets.token_hex(8))
        self.state = replace(before, opened=before.opened + 1)
        self._row = self.state.iteration + 1
        """W&B's own count, which only grows: a step's number; what comes first after a restart begins a new one."""
        self._trained_tokens = 0

    def open(self) -> None:
        """Begin or continue the curve; waits for the network in mode online."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_state(self._folder, self.state)
        config = read_json(self._run_dir / "config.json", dict)
        ours = self._wandb.setup().settings  # what environment variables and W&B's own files say
        settings = self._wandb.Settings(
            console="off",
            disable_git=True,
            save_code=False,
            silent=True,
            init_timeout=INIT_S,
            x_disable_stats=True,  # it would ask the devices for their state beside training
        )
        self._run = self._wandb.init(
            id=self.state.id,
            resume="allow",
            mode=self._mode,
            dir=str(self._run_dir),
            project=ours.project or config["benchmark"]["name"],
            name=ours.run_name or self._run_dir.name,
            config=config,
            allow_val_change=True,
            settings=settings,
        )
        for metric, axis in AXES.items():
            self._run.define_metric(metric, step_metric=axis)
        self._lines = Path(self._run.dir) / f"messages_{self.state.opened}.txt"
        self._lines.touch()
        self._run.save(str(self._lines), base_path=str(self._lines.parent), policy="live")

    def take(self, event: Mapping[str, Any]) -> None:
        """An event as it stands in ``events.jsonl``."""
        key = event.get("key")
        if key == "step":
            self._trained_tokens = event["trained_tokens"]
            if event["iteration"] <= self.state.iteration:
                return
            self._row = max(self._row, event["iteration"])
            self.state = replace(self.state, iteration=event["iteration"])
        elif key == "evaluation":
            if event["trained_tokens"] <= self.state.evaluated_tokens:
                return
            self.state = replace(self.state, evaluated_tokens=event["trained_tokens"])
        figures = {tag: event[name] for name, tag in MORE.get(str(key), {}).items() if event.get(name) is not None}
        if key == "restart":
            figures = {"restarts": event["value"]}
        if key == "evaluation":
            figures["evaluated_tokens"] = event["trained_tokens"]
        elif figures:
            figures["trained_tokens"] = self._trained_tokens
        if figures:
            self._run.log({**figures, "_timestamp": event["time_ms"] / 1000}, step=self._row)
        elif key in TOLD:
            self._say(event)

    def close(self) -> None:
        self._run.finish()

    def _say(self, event: Mapping[str, Any]) -> None:
        """A line for people: messages, incidents."""
        own = {"time_ms", "key", "kind", "value"}
        rest = {name: value for name, value in event.items() if name not in own}
        text = str(event["value"]) if event.get("value") is not None else ""
        more = json.dumps(rest) if rest else ""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event["time_ms"] / 1000))
        line = " ".join(f"{when} {event['key']}: {text} {more}".split())[:MOST_CHARACTERS]
        with self._lines.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self._run.summary["last_message"] = line


def follow_run(curve: WandbCurve, events: Path, ended: threading.Event) -> None:
    """Give ``curve`` the events, as they come, until ``ended`` is set; then what is left."""
    given, written, last = deque([(time.monotonic(), curve.state)]), curve.state, False
    while not last:
        last = ended.wait(POLL_S)
        for event, offset in read_lines(events, curve.state.offset):
            if event is not None:
                curve.take(event)
            curve.state = replace(curve.state, offset=offset)
        given.append((time.monotonic(), curve.state))
        while len(given) > 1 and given[1][0] < time.monotonic() - LAG_S:
            given.popleft()
        if given[0][1] != written:
            written = given[0][1]
            write_state(events.parent / "wandb", written)


def read_lines(path: Path, offset: int) -> Iterator[tuple[dict[str, Any] | None, int]]:
    """Whole lines from ``offset`` on, as events or None for what is none, and the offset behind each."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            yield (event if isinstance(event, dict) else None), offset


def read_state(folder: Path) -> WandbState | None:
    """None where there is none, or what is there is not what was written."""
    try:
        state = read_json(folder / "state.json", WandbState)
    except UNREADABLE:
        return None
    numbers = (state.offset, state.iteration, state.evaluated_tokens, state.opened)
    sound = isinstance(state.id, str) and state.id and all(type(number) is int and number >= 0 for number in numbers)
    return state if sound else None


def write_state(folder: Path, state: WandbState) -> None:
    write_text(folder / "state.json", json.dumps(asdict(state)) + "\n")


def main(run_dir: Path, mode: str) -> None:
    """Follow the run until standard input ends. Raises InputError where wandb is missing or another one follows."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # they are meant for the run; this ends when it has
    ended = threading.Event()
    threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
    folder = run_dir / "wandb"
    folder.mkdir(parents=True, exist_ok=True)
    with only_one_in(folder, "end it"):
        curve = WandbCurve(import_optional("wandb", "wandb", "--wandb"), run_dir, mode)
        curve.open()
        follow_run(curve, run_dir / "events.jsonl", ended)
        curve.close()
        write_state(folder, curve.state)


def _await_end(ended: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    ended.set()
    time.sleep(FINISH_S)
    print(f"not sent within {FINISH_S:.0f} s of the end of the run", flush=True)
    os._exit(1)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except InputError as error:
        print(f"error: {error}", flush=True)
        raise SystemExit(2) from None
