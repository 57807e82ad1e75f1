"""A submission in memory, to be changed as a cheat or an odd but honest submitter would, and written as a package.

Two kinds to begin with: the made-up one of ``fixture.py``, and one made anew from a published one (``renewed.py``).
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.results.mllog import TOKEN
from benchmark.results.run_summary import STEP_TIMING, VALIDATION_TIMING
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import GPT3_MADE, ORG, MadeUp, Record, records_of, system_description

TOKENS_PER_STEP = 2048 * 2048
CODE = ("README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh")


@dataclass
class SubmissionOnTrial:
    """One system of one submitter."""

    org: str
    """Also the name of the package's folder."""
    system: str
    logs: list[Log]
    description: dict[str, Any]
    benchmark: str = "gpt3"
    afterwards: list[Callable[[Path], object]] = field(default_factory=list)
    """What is done to the written package."""

    @property
    def results(self) -> str:
        return f"results/{self.system}/{self.benchmark}"

    def write(self, folder: Path) -> Path:
        """The package's folder."""
        package = folder / self.org
        for path in (package / self.results, package / "systems", package / self.code):
            path.mkdir(parents=True)
        for number, log in enumerate(self.logs):
            (package / self.results / f"result_{number}.txt").write_text(as_lines(log.records))
        (package / "systems" / f"{self.system}.json").write_text(json.dumps(self.description, indent=1) + "\n")
        for name in CODE:
            (package / self.code / name).write_text("as in the reference\n")
        for change in self.afterwards:
            change(package)
        return package

    @property
    def code(self) -> str:
        return f"benchmarks/{self.benchmark}/implementations/{self.system}"

    def each(self, change: Callable[[Log], object]) -> None:
        for log in self.logs:
            change(log)

    def file(self, path: str, content: str | bytes) -> None:
        """Write one more file into the package, or another over one of its own."""

        def change(package: Path) -> None:
            target = package / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)

        self.afterwards.append(change)

    def bytes_of(self, path: str, change: Callable[[bytes], bytes]) -> None:
        def rewrite(package: Path) -> None:
            (package / path).write_bytes(change((package / path).read_bytes()))

        self.afterwards.append(rewrite)

    def log_bytes(self, change: Callable[[bytes], bytes]) -> None:
        for number in range(len(self.logs)):
            self.bytes_of(f"{self.results}/result_{number}.txt", change)

    @property
    def description_path(self) -> str:
        return f"systems/{self.system}.json"


def made_up(made: MadeUp = GPT3_MADE) -> SubmissionOnTrial:
    logs = [Log(records_of(made, seed)) for seed in made.seeds]
    return SubmissionOnTrial(ORG, made.name, logs, system_description(made), made.benchmark.mlperf_name)


def as_lines(run: Sequence[Record]) -> str:
    return "".join(f"{TOKEN}{json.dumps(record)}\n" for record in run)


def with_steps() -> SubmissionOnTrial:
    """The made-up one, with the times of its steps as published logs have them: neighbours alike, a few far off."""
    one = made_up()
    for number, log in enumerate(one.logs):
        log.records = _with_steps(log.records, random.Random(900 + number))
    return one


def _with_steps(run: Sequence[Record], draw: random.Random) -> list[Record]:
    found: list[Record] = []
    slow = 0.0
    for record in run:
        if record["key"] in ("block_stop", "eval_accuracy"):
            block = record["key"] == "block_stop"
            count, name = (12, STEP_TIMING[1]) if block else (3, VALIDATION_TIMING[1])
            start, length = found[-1]["time_ms"], record["time_ms"] - found[-1]["time_ms"]
            weights = []
            for _ in range(count):
                slow = 0.6 * slow + draw.gauss(0, 5e-4)
                weights.append(1 + slow + (draw.random() < 0.03) * draw.expovariate(100))
            before = record["metadata"].get("first_epoch_num", 0)
            for step in range(1, count + 1):
                share = sum(weights[:step]) / sum(weights)
                tokens = before + step * TOKENS_PER_STEP if block else record["metadata"]["epoch_num"]
                seconds = 0.99 * length * weights[step - 1] / sum(weights) / 1000
                found.append(_tracked(record, start + round(0.995 * length * share), name, seconds, tokens))
        found.append(record)
    return found


def _tracked(record: Record, time_ms: int, name: str, value: float, tokens: float) -> Record:
    metadata = {"file": "train.py", "lineno": 9, "step": tokens}
    changes = {"time_ms": time_ms, "key": "tracked_stats", "value": {name: value}, "metadata": metadata}
    return {**record, "event_type": "POINT_IN_TIME", **changes}
