"""A made-up submission that is without fault, to be damaged. It is no result of anything."""

import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmark.config.reference_curves import REFERENCE_CURVES
from benchmark.results.mllog import parse_log
from benchmark.results.run_summary import RunSummary
from benchmark.results.system_description import FIELDS

Record = dict[str, Any]
START_MS = 1_728_500_000_000
BLOCK_MS = 120_000
EVALUATION_MS = 10_000
SYSTEM = "acme_h100x512"
ORG = "ACME"
SEEDS = (1001, 20402, 7303)
"""Of a package's runs, which follow each other in this order."""
SOURCE = "benchmark/training/train.py"


def records(seed: int, *, batch_size: int = 2048, evaluations: int = 24, rate: float = 2e-5) -> list[Record]:
    """The records of a run, in order."""
    return list(_records(seed, batch_size, evaluations, rate))


def log_perplexities(batch_size: int, evaluations: int, noise: random.Random) -> Iterator[float]:
    """The median curve of published runs at the nearest batch size, stretched to so many evaluations, with noise."""
    curve = min(REFERENCE_CURVES["gpt3_175b"], key=lambda one: abs(one.global_batch_size - batch_size))
    values = curve.log_perplexities
    for number in range(evaluations - 1):
        place = number * (len(values) - 1) / (evaluations - 1)
        before, share = int(place), place % 1
        value = values[before] + share * (values[before + 1] - values[before]) + noise.gauss(0, 2e-4)
        yield value if value > 2.6901 else 2.6901 + noise.uniform(0, 3e-4)
    yield 2.6895 + noise.uniform(0, 4e-4)


def _records(seed: int, batch_size: int, evaluations: int, rate: float) -> Iterator[Record]:
    interval = math.ceil(24576 / batch_size) * batch_size * 2048
    now = START_MS + seed % 100 * 10_000_000
    noise = random.Random(seed)
    values = list(log_perplexities(batch_size, evaluations, noise))
    jitter_ms = [round(noise.gauss(0, 60)) for _ in values]

    def record(key: str, value: Any = None, kind: str = "POINT_IN_TIME", after_ms: int = 1, **fields: Any) -> Record:
        nonlocal now
        now += after_ms
        metadata = {"file": SOURCE, "lineno": 100 + len(key), **fields}
        return {
            "namespace": "",
            "time_ms": now,
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": metadata,
        }

    yield record("cache_clear", True)
    yield record("init_start", kind="INTERVAL_START")
    yield record("submission_benchmark", "gpt3", after_ms=200_000)
    yield record("submission_org", ORG)
    yield record("submission_division", "closed")
    yield record("submission_status", "onprem")
    yield record("submission_platform", "ACME-H100-n64")
    yield record("seed", seed)
    yield record("global_batch_size", batch_size)
    yield record("gradient_accumulation_steps", 4)
    yield record("max_sequence_length", 2048)
    yield record("eval_samples", 11590004)
    yield record("init_checkpoint_step", math.ceil(4000 * 1536 / batch_size))
    yield record("opt_name", "adam")
    yield record("opt_base_learning_rate", rate)
    yield record("opt_end_learning_rate", rate / 10)
    yield record("opt_learning_rate_warmup_steps", math.ceil(265 * 1536 / batch_size))
    yield record("opt_learning_rate_decay_steps", math.ceil(108600 * 1536 / batch_size))
    yield record("opt_learning_rate_decay_schedule", "cosine with linear warmup")
    yield record("opt_adam_beta_1", 0.9)
    yield record("opt_adam_beta_2", 0.95)
    yield record("opt_adam_epsilon", 1e-8)
    yield record("opt_weight_decay", 0.1)
    yield record("opt_gradient_clip_norm", 1.0)
    yield record("init_stop", kind="INTERVAL_END")
    yield record("run_start", kind="INTERVAL_START")
    yield record("epoch_start", kind="INTERVAL_START", epoch_num=0)
    for number in range(1, evaluations + 1):
        before, tokens = (number - 1) * interval, number * interval
        yield record("block_start", kind="INTERVAL_START", first_epoch_num=before, epoch_count=interval)
        block_ms = BLOCK_MS + jitter_ms[number - 1] - (jitter_ms[number - 2] if number > 1 else jitter_ms[-1])
        yield record("block_stop", None, "INTERVAL_END", block_ms, first_epoch_num=before, epoch_count=interval)
        yield record("eval_start", kind="INTERVAL_START", epoch_num=tokens)
        evaluation_ms = EVALUATION_MS + round(noise.gauss(0, 3))
        yield record("eval_accuracy", values[number - 1], after_ms=evaluation_ms, epoch_num=tokens)
        yield record("eval_stop", kind="INTERVAL_END", epoch_num=tokens)
    yield record("run_stop", kind="INTERVAL_END", status="success")
    yield record("train_samples", evaluations * interval)
    yield record("trained_samples", evaluations * interval)
    yield record("epoch_stop", kind="INTERVAL_END", epoch_num=evaluations * interval)


def as_text(run: list[Record]) -> str:
    return "".join(f":::MLLOG {json.dumps(record)}\n" for record in run)


def system_description() -> dict[str, Any]:
    """All mandatory fields."""
    filled = {
        "submitter": ORG,
        "division": "closed",
        "status": "Available on-premise",
        "system_name": SYSTEM,
        "number_of_nodes": "64",
        "host_processors_per_node": "2",
        "host_processor_model_name": "ACME CPU",
        "host_processor_core_count": "56",
        "accelerators_per_node": "8",
        "accelerator_model_name": "NVIDIA H100-SXM5-80GB",
        "framework": "PyTorch 2.13",
        "other_software_stack": {"cuda": "12.6"},
    }
    return {name: filled.get(name, "") for name in (field.name for field in FIELDS)}


def write_package(folder: Path, make: Callable[[int], list[Record]] = records) -> Path:
    """ORG with one system, three runs and code; returns ORG."""
    package = folder / ORG
    results = package / "results" / SYSTEM / "gpt3"
    results.mkdir(parents=True)
    for number in range(3):
        (results / f"result_{number}.txt").write_text(as_text(make(SEEDS[number])))
    (package / "systems").mkdir()
    (package / "systems" / f"{SYSTEM}.json").write_text(json.dumps(system_description(), indent=1) + "\n")
    code = package / "benchmarks" / "gpt3" / "implementations" / SYSTEM
    code.mkdir(parents=True)
    for name in ("README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh"):
        (code / name).write_text("as in the reference\n")
    return package


def summary_of(run: list[Record], path: Path = Path("result_0.txt")) -> RunSummary:
    """What is read of such records."""
    return RunSummary(parse_log(path, as_text(run).encode()))


def write_run(folder: Path, run: list[Record]) -> Path:
    """A folder with that log alone; returns the log."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "result_0.txt"
    path.write_text(as_text(run))
    return path
