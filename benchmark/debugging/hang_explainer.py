"""What a process of a run says when its watchdog asks: the collectives it waits in."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmark.debugging.collective_trace import pending_collectives, trace
from benchmark.launch.heartbeat import Heartbeat
from stage.outputs.publish import write_text

LOOK_S = 0.25


@contextmanager
def explaining(heartbeat: Heartbeat, path: Path) -> Iterator[None]:
    """Write pending collectives to ``path``, a list of lines as JSON, once the watchdog asks for them (``heartbeat``).

    From a thread: it answers while the main thread waits for a device or another process, but not where that holds the
    interpreter's lock.
    """
    done = threading.Event()

    def explain() -> None:
        while not done.wait(LOOK_S):
            if heartbeat.is_asked():
                lines = [pending.line() for pending in pending_collectives(trace())]
                write_text(path, json.dumps(lines) + "\n")
                return

    threading.Thread(target=explain, name="hang explainer", daemon=True).start()
    try:
        yield
    finally:
        done.set()
