"""Code on a GPU that is not there, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmark.planning.dry_run.tracker import Tracker
from benchmark.planning.fake_device.fake_gpu import Capability, fake_gpu


@contextmanager
def on_fake_gpu(capability: Capability = (9, 0), *, strict: bool = False) -> Iterator[Tracker]:
    """Everything that runs within is counted; ``strict``: the host may not wait."""
    with fake_gpu(devices=8, capability=capability, memory_bytes=80 * 10**9, name="a GPU") as gpu:
        tracker = Tracker({}, gpu)
        with tracker:
            gpu.rules.strict = strict
            yield tracker
