"""Made-up submissions without fault, in memory, to be changed and written. They are no results of anything."""

import json
import marshal
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B
from benchmark.config.description_fields import FIELDS
from benchmark.config.reference_curves import REFERENCE_CURVES
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.judging.results.run_summary import STEP_TIMING, VALIDATION_TIMING, RunSummary
from benchmark.run_record.events.mllog import parse_log
from benchmark.run_record.events.mlperf_log import (
    block_fields,
    log_configuration,
    log_disclosure,
    logged_progress,
    progress_fields,
)
from tests.support import changed

Record = dict[str, Any]
START_MS = 1_728_500_000_000
SYSTEM = "acme_h100x512"
ORG = "ACME"
SEEDS = (1001, 20402, 7303)
"""Of a package's runs, which follow each other in this order."""
SOURCE = "benchmark/training/train.py"
CODE = ("README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh")
T = 50_331_648
"""Tokens between evaluations at batch size 2048."""
Curve = Callable[[int, int, random.Random], Iterator[float]]
"""The values of so many evaluations at a batch size, of which only the last meets the target."""


def gpt3_curve(batch_size: int, evaluations: int, noise: random.Random) -> Iterator[float]:
    """The median curve of published runs at the nearest batch size, stretched to so many evaluations, with noise."""
    curve = min(REFERENCE_CURVES["gpt3_175b"], key=lambda one: abs(one.global_batch_size - batch_size))
    values = curve.log_perplexities
    for number in range(evaluations - 1):
        place = number * (len(values) - 1) / (evaluations - 1)
        before, share = int(place), place % 1
        value = values[before] + share * (values[before + 1] - values[before]) + noise.gauss(0, 2e-4)
        yield value if value > 2.6901 else 2.6901 + noise.uniform(0, 3e-4)
    yield 2.6895 + noise.uniform(0, 4e-4)


def llama_curve(_: int, evaluations: int, noise: random.Random) -> Iterator[float]:
    """A power law down to the target."""
    for number in range(1, evaluations):
        yield max(3.301, 2.8 + 0.5 * (evaluations / number) ** 0.6 + noise.gauss(0, 2e-3))
    yield 3.2985 + noise.uniform(0, 1e-3)


@dataclass(frozen=True)
class MadeUp:
    """A result to be made up."""

    benchmark: Benchmark
    system: System
    name: str
    """Of the system's description."""
    curve: Curve
    evaluations: int
    block_ms: int
    evaluation_ms: int
    seeds: tuple[int, ...]

    @property
    def folder(self) -> str:
        return f"results/{self.name}/{self.benchmark.mlperf_name}"


def _llama(nodes: int, batch_size: int, warm_up_samples: int, evaluations: int) -> MadeUp:
    """Llama 3.1 8B on so many nodes, with the rate and the warm-up of the reference points."""
    optimizer = replace(LLAMA31_8B.optimizer, lr=8e-4, min_lr=8e-5, lr_warmup_samples=warm_up_samples)
    benchmark = replace(LLAMA31_8B, global_batch_size=batch_size, optimizer=optimizer)
    system = replace(SYSTEMS["dgxh100_n1"], name=f"dgxh100_n{nodes}", nodes=nodes, platform=f"ACME-H100-n{nodes}")
    draw = random.Random(nodes)
    seeds = tuple(100 * draw.randrange(1000) + 3 + 6 * number for number in range(10))
    block_ms, evaluation_ms = 1_180_000 // nodes, 33_000 // nodes
    return MadeUp(benchmark, system, f"acme_h100x{8 * nodes}", llama_curve, evaluations, block_ms, evaluation_ms, seeds)


GPT3_MADE = MadeUp(
    replace(GPT3_175B, global_batch_size=2048),
    replace(SYSTEMS["dgxh100_n64"], platform="ACME-H100-n64"),
    SYSTEM,
    gpt3_curve,
    24,
    120_000,
    10_000,
    SEEDS,
)
LLAMA_N1, LLAMA_N8 = _llama(1, 32, 4096, 15), _llama(8, 64, 6144, 19)


def records(seed: int, *, batch_size: int = 2048, evaluations: int = 24, rate: float = 2e-5) -> list[Record]:
    """The records of a run of GPT-3, in order."""
    optimizer = replace(GPT3_175B.optimizer, lr=rate, min_lr=rate / 10)
    benchmark = replace(GPT3_175B, global_batch_size=batch_size, optimizer=optimizer)
    return records_of(replace(GPT3_MADE, benchmark=benchmark, evaluations=evaluations), seed)


class _Recorder:
    """Events as this repository logs them, at made-up times."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms, self.records = now_ms, list[Record]()

    def point(
        self, key: str, value: Any = None, after_ms: int = 1, kind: str = "POINT_IN_TIME", **metadata: Any
    ) -> None:
        self.now_ms += after_ms
        fields = {"namespace": "", "time_ms": self.now_ms, "event_type": kind, "key": key, "value": value}
        self.records.append({**fields, "metadata": {"file": SOURCE, "lineno": 100 + len(key), **metadata}})

    def start(self, key: str, **metadata: Any) -> None:
        self.point(key, kind="INTERVAL_START", **metadata)

    def end(self, key: str, after_ms: int = 1, **metadata: Any) -> None:
        self.point(key, None, after_ms, "INTERVAL_END", **metadata)


def records_of(made: MadeUp, seed: int) -> list[Record]:
    """The records of a run, in order, with the keys that this repository logs; a copy that a test may change."""
    run: list[Record] = marshal.loads(_marshalled(made, seed))
    return run


@lru_cache(256)
def _marshalled(made: MadeUp, seed: int) -> bytes:
    benchmark, noise = made.benchmark, random.Random(seed)
    interval = benchmark.eval_interval * benchmark.tokens_per_step
    values = list(made.curve(benchmark.global_batch_size, made.evaluations, noise))
    jitter_ms = [round(noise.gauss(0, 60)) for _ in values]
    log: Any = _Recorder(START_MS + seed % 100 * 10_000_000)
    config = changed(RunConfig(benchmark, made.system), submission_org=ORG, submission_status="onprem")
    log.point("cache_clear", True)
    log.start("init_start")
    log.now_ms += 199_999
    log_configuration(log, benchmark, config.system, config.logging, seed=seed, eval_tokens=11_590_004)
    log_disclosure(log, config.system, precision="bf16", fp32_products="fp32")
    log.end("init_stop")
    log.start("run_start")
    log.start("epoch_start", **progress_fields(benchmark, 0))
    for number, value in enumerate(values, 1):
        before, after = (number - 1) * interval, progress_fields(benchmark, number * interval)
        log.start("block_start", **block_fields(benchmark, before, interval, ended=False))
        block_ms = made.block_ms + jitter_ms[number - 1] - (jitter_ms[number - 2] if number > 1 else jitter_ms[-1])
        log.end("block_stop", after_ms=block_ms, **block_fields(benchmark, before, interval, ended=True))
        log.start("eval_start", **after)
        log.point("eval_accuracy", value, after_ms=made.evaluation_ms + round(noise.gauss(0, 3)), **after)
        log.end("eval_stop", **after)
    tokens = made.evaluations * interval
    log.end("run_stop", status="success")
    for key in ("train_samples", "trained_samples"):
        log.point(key, logged_progress(benchmark, tokens))
    log.end("epoch_stop", **progress_fields(benchmark, tokens))
    return marshal.dumps(log.records)


PROGRESS = ("epoch_num", "samples_count", "first_epoch_num", "step")
"""Metadata that tell how far training is."""


class Log:
    """A run's records, to be changed. Changes return the line that they changed."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def places(self, key: str) -> list[int]:
        return [place for place, record in enumerate(self.records) if record["key"] == key]

    def place(self, key: str, number: int = 0) -> int:
        return self.places(key)[number]

    def time(self, key: str, number: int = 0) -> int:
        return int(self.records[self.place(key, number)]["time_ms"])

    @property
    def values(self) -> list[float]:
        return [self.records[place]["value"] for place in self.places("eval_accuracy")]

    def set(self, key: str, value: Any, number: int = 0) -> int:
        place = self.place(key, number)
        self.records[place]["value"] = value
        return place + 1

    def metadata(self, key: str, number: int = 0, remove: tuple[str, ...] = (), **fields: Any) -> int:
        place = self.place(key, number)
        metadata = self.records[place]["metadata"]
        metadata.update(fields)
        for name in remove:
            del metadata[name]
        return place + 1

    def without(self, *keys: str) -> None:
        self.records = [record for record in self.records if record["key"] not in keys]

    def copied(self, place: int, **changes: Any) -> Record:
        return {**self.records[place], "metadata": dict(self.records[place]["metadata"]), **changes}

    def set_time(self, key: str, time_ms: int, number: int = 0) -> int:
        place = self.place(key, number)
        self.records[place]["time_ms"] = time_ms
        return place + 1

    def insert(
        self, before: str, key: str, value: Any = None, number: int = 0, later_ms: int = 0, **metadata: Any
    ) -> int:
        """Insert a record before another one, at that one's time or later."""
        place = self.place(before, number)
        recorder = _Recorder(self.records[place]["time_ms"] + later_ms)
        kind = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}.get(key.rpartition("_")[2], "POINT_IN_TIME")
        recorder.point(key, value, 0, kind, **metadata)
        self.records[place:place] = recorder.records
        return place + 1

    def move(self, key: str, before: str, number: int = 0, later_ms: int = 0) -> int:
        """Move a record before another one, to that one's time or later."""
        record = self.records.pop(self.place(key))
        place = self.place(before, number)
        record["time_ms"] = self.records[place]["time_ms"] + later_ms
        self.records.insert(place, record)
        return place + 1

    def shift(self, place: int, milliseconds: int) -> int:
        """Let everything from ``place`` on be so much later."""
        for record in self.records[place:]:
            record["time_ms"] += milliseconds
        return place + 1

    def stretch(self, factor: Callable[[float], float]) -> None:
        """Multiply the delays after run_start by a factor, which may depend on the share of the run."""
        start, stop = self.time("run_start"), self.time("run_stop")
        for record in self.records[self.place("run_start") :]:
            after = record["time_ms"] - start
            record["time_ms"] = start + round(after * factor(after / (stop - start)))

    def tracked(self, names: Sequence[str] = STEP_TIMING) -> list[tuple[Record, str]]:
        """Return the records with a value of one of these names, and the name."""
        found = [self.records[place] for place in self.places("tracked_stats")]
        return [(record, name) for record in found for name in names if name in record["value"]]


def as_text(run: list[Record]) -> str:
    return "".join(f":::MLLOG {json.dumps(record)}\n" for record in run)


def system_description(made: MadeUp = GPT3_MADE) -> dict[str, Any]:
    """All mandatory fields."""
    filled = {
        "submitter": ORG,
        "division": "closed",
        "status": "Available on-premise",
        "system_name": made.name,
        "number_of_nodes": str(made.system.nodes),
        "host_processors_per_node": "2",
        "host_processor_model_name": "ACME CPU",
        "host_processor_core_count": "56",
        "accelerators_per_node": "8",
        "accelerator_model_name": "NVIDIA H100-SXM5-80GB",
        "framework": "PyTorch 2.13",
        "other_software_stack": {"cuda": "12.6"},
    }
    return {name: filled.get(name, "") for name in (field.name for field in FIELDS)}


@dataclass
class Submission:
    """One system of one submitter, as a cheat or an odd but honest submitter may change it."""

    org: str
    system: str
    logs: list[Log]
    description: dict[str, Any]
    benchmark: str = "gpt3"
    afterwards: list[Callable[[Path], object]] = field(default_factory=list)
    """Changes to the written package."""

    @property
    def results(self) -> str:
        return f"results/{self.system}/{self.benchmark}"

    @property
    def code(self) -> str:
        return f"benchmarks/{self.benchmark}/implementations/{self.system}"

    @property
    def description_path(self) -> str:
        return f"systems/{self.system}.json"

    def write(self, package: Path) -> Path:
        """Write the system into a package, which is made unless it exists; returns the package."""
        for number, log in enumerate(self.logs):
            _write(package / self.results / f"result_{number}.txt", as_text(log.records))
        _write(package / self.description_path, json.dumps(self.description, indent=1) + "\n")
        for name in CODE:
            _write(package / self.code / name, "as in the reference\n")
        for change in self.afterwards:
            change(package)
        return package

    def file(self, path: str, content: str | bytes) -> None:
        """Write one more file into the package, or another over one of its own."""
        self.afterwards.append(lambda package: _write(package / path, content))

    def bytes_of(self, path: str, change: Callable[[bytes], bytes]) -> None:
        self.afterwards.append(lambda package: _write(package / path, change((package / path).read_bytes())))


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def made_up(made: MadeUp = GPT3_MADE, make: Callable[[int], list[Record]] | None = None) -> Submission:
    logs = [Log(records_of(made, seed) if make is None else make(seed)) for seed in made.seeds]
    return Submission(ORG, made.name, logs, system_description(made), made.benchmark.mlperf_name)


def with_steps() -> Submission:
    """Return the made-up one, with the times of its steps as published logs have them."""
    one = made_up()
    for number, log in enumerate(one.logs):
        log.records = list(_with_steps(log.records, random.Random(900 + number)))
    return one


def _with_steps(run: Sequence[Record], draw: random.Random) -> Iterator[Record]:
    """Yield the records, and 12 steps before the end of each block and 3 before that of each evaluation."""
    before_ms = 0
    for record in run:
        if record["key"] in ("block_stop", "eval_accuracy"):
            block, length = record["key"] == "block_stop", record["time_ms"] - before_ms
            count, name = (12, STEP_TIMING[1]) if block else (3, VALIDATION_TIMING[1])
            begun = record["metadata"].get("first_epoch_num", 0)
            for step in range(1, count + 1):
                metadata = {
                    "file": SOURCE,
                    "lineno": 9,
                    "step": begun + step * 2048 * 2048 if block else record["metadata"]["epoch_num"],
                }
                yield {
                    **record,
                    "time_ms": before_ms + round(0.995 * length * step / count),
                    "event_type": "POINT_IN_TIME",
                    "key": "tracked_stats",
                    "value": {name: 0.99 * length / count / 1000 * (1 + draw.gauss(0, 5e-4))},
                    "metadata": metadata,
                }
        before_ms = record["time_ms"]
        yield record


def write_package(folder: Path, make: Callable[[int], list[Record]] = records) -> Path:
    """Write ORG with one system, three runs of GPT-3 and code; returns ORG."""
    return made_up(GPT3_MADE, make).write(folder / ORG)


def summary_of(run: list[Record], path: Path = Path("result_0.txt")) -> RunSummary:
    """What is read of such records."""
    return RunSummary(parse_log(path, as_text(run).encode()))


def write_run(folder: Path, run: list[Record]) -> Path:
    """A folder with that log alone; returns the log."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "result_0.txt"
    path.write_text(as_text(run))
    return path
