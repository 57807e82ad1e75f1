"""Ten thousand logs and descriptions as nobody would write them, against rules, scores, screen and JSON of a review.

    python -m tests.speed.fuzz_review [--examples 10000]

First logs of huge parts, with the processor time and memory of each. Prints what Hypothesis shrank a failure to, how
long the slowest took, and the most memory. A few of them are in tests/benchmark/review/test_hostile_inputs.py.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

from tests.benchmark.review.huge_logs import HUGE, measured
from tests.benchmark.review.mutations import descriptions, logs
from tests.benchmark.review.sound_review import (
    assert_findings_are_sound,
    assert_sound,
    review_description,
    review_log,
)

SHARE_OF_LOGS = 0.9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=10_000)
    total = parser.parse_args().examples
    slowest, count = 0.0, 0

    def timed(seconds: float) -> None:
        nonlocal slowest, count
        slowest, count = max(slowest, seconds), count + 1

    quiet: Any = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

    @settings(max_examples=int(total * SHARE_OF_LOGS), **quiet)
    @given(logs())
    def fuzz_logs(content: bytes) -> None:
        started = time.perf_counter()
        assert_sound(review_log(content))
        timed(time.perf_counter() - started)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "system.json")

        @settings(max_examples=total - int(total * SHARE_OF_LOGS), **quiet)
        @given(descriptions())
        def fuzz_descriptions(content: bytes) -> None:
            path.write_bytes(content)
            started = time.perf_counter()
            assert_findings_are_sound(review_description(path, "4.1.0"))
            timed(time.perf_counter() - started)

        failures = 0
        for name, make in HUGE.items():
            one = measured(make())
            print(f"{name:42} {one.cpu_s:6.2f} s  {one.bytes_more >> 20:5,} MiB more", flush=True)
            failures += not one.within_limits
        for fuzz in (fuzz_logs, fuzz_descriptions):
            try:
                fuzz()
            except Exception as error:
                failures += 1
                print(f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{count:,} inputs, {failures} kinds of failure, slowest {slowest:.2f} s, at most {memory:,} MiB")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
