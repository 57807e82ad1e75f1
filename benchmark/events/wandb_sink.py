"""Weights & Biases, in a process of its own: its library starts threads and programs, and waits for the network at its
beginning and end. That process reads ``events.jsonl`` (wandb_process.py); here it is started, and told of the end.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from benchmark.events.event import Event
from stage.git import REPOSITORY
from stage.optional_packages import require_optional

RETRY_S = 60.0
"""Until a process that ended too early is started again."""
CLOSE_S = 8.0
"""How long the end of a run waits for what is left to be sent; the process goes on a little without it."""
NICENESS = 10
LAST_BYTES = 4096
"""Of its output, in which the reason stands."""


class WandbSink:
    """Raises InputError where wandb is not installed. Everything lies in ``RUN_DIR/wandb``."""

    name = "W&B"

    def __init__(
        self,
        run_dir: Path,
        mode: Literal["online", "offline"],
        *,
        retry_s: float = RETRY_S,
        close_s: float = CLOSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        require_optional("wandb", "wandb", "--wandb")
        self._run_dir, self._mode = run_dir.absolute(), mode
        self._retry_s, self._close_s, self._clock = retry_s, close_s, clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = -retry_s

    @property
    def output(self) -> Path:
        return self._run_dir / "wandb" / "process.log"

    def write(self, event: Event) -> None:
        """See that the process runs; the event comes to it through ``events.jsonl``. Raises OSError while it does
        not run, with the last thing it said."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None and self._clock() - self._started_at < self._retry_s:
            raise ConnectionError(f"{self._last_words()} ({self.output})")
        self._start()

    def close(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(self._close_s)
        except subprocess.TimeoutExpired:
            return  # it ends by itself (wandb_process.py)

    def _start(self) -> None:
        self.output.parent.mkdir(parents=True, exist_ok=True)
        module = [sys.executable, "-m", "benchmark.events.wandb_process", str(self._run_dir), self._mode]
        self._started_at = self._clock()
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                ["nice", "-n", str(NICENESS), *module],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,  # its end is ours, however that comes
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _last_words(self) -> str:
        with self.output.open("rb") as file:
            file.seek(max(0, self.output.stat().st_size - LAST_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
        said = [" ".join(line.split()) for line in lines if line.strip()]
        return said[-1][:300] if said else "its process has ended"
