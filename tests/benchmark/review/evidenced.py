"""Evidence for the made-up logs of fixture.py, as a run would have written it. No step of it was trained."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.schedule import learning_rate
from benchmark.evidence.chain_links import EVIDENCE, NOTHING, encode_link
from benchmark.evidence.link_contents import (
    BeginLink,
    Content,
    EndLink,
    EvaluationLink,
    Machinery,
    StatePrint,
    StepLink,
)
from benchmark.evidence.tensor_prints import PRINT, PROJECTION, as_text
from model.flops import num_parameters
from tests.benchmark.review.fixture import SEEDS, SYSTEM, Record, records, write_package
from tests.benchmark.review.fixture import as_text as log_text

BATCH, SEQUENCE, SCORED = 2048, 2048, 11_565_000
EVALUATIONS = 24
BENCHMARK = dataclasses.replace(
    GPT3_175B,
    global_batch_size=BATCH,
    target_log_perplexity=2.69,
    optimizer=dataclasses.replace(GPT3_175B.optimizer, min_lr=2e-5 / 10),  # as the fixture's logs have it
)
INPUTS = {"c4_en_6_c4_spm_text_document.bin": "317a1c1b0b17fbd658e3e0b09d118ce9"}
START = StatePrint(as_text(np.array([1]), PRINT), as_text(np.array([2]), PRINT), as_text(np.array([3]), PRINT))
SIZES = (num_parameters(BENCHMARK.model),)
Edit = Callable[[Content], Content | None]
EditLog = Callable[[Record], Record | None]
PLACE = f"benchmarks/gpt3/implementations/{SYSTEM}/evidence"


def same(given: Any) -> Any:
    """No edit."""
    return given


def links(log: Sequence[Record], seed: int) -> list[Content]:
    """Of a log of the fixture, but for the end."""
    every = math.ceil(24576 / BATCH)
    found: list[Content] = []
    begun = next(record["time_ms"] for record in log if record["key"] == "run_start") - 1
    machinery = Machinery({"devices": 512}, {"torch": "2.13"})
    asked = json.loads(json.dumps(dataclasses.asdict(BENCHMARK)))
    found.append(BeginLink(1, 0, begun, seed, "bf16", asked, INPUTS, ("w",), SIZES, machinery, START))
    blocks = [record for record in log if record["key"] == "block_start"]
    values = [record for record in log if record["key"] == "eval_accuracy"]
    for block, (start, value) in enumerate(zip(blocks, values, strict=True)):
        for step in range(block * every + 1, (block + 1) * every + 1):
            before = BENCHMARK.start_samples + (step - 1) * BATCH
            prints = f"{seed * 10_000 + step:016x}"
            weights = as_text(np.array([seed * 10_000 + step]), PRINT)
            projection = as_text(np.array([0.5]), PROJECTION)
            rate = learning_rate(before, BENCHMARK.optimizer)
            done = start["time_ms"] + (step - block * every) * 9_000
            figures = 2.6 + 0.1 / step, 0.5 + 0.1 / step, rate
            found.append(StepLink(step, done, before, prints, prints, *figures, False, weights, projection))
        found.append(EvaluationLink((block + 1) * every, value["time_ms"], value["value"], SCORED))
    return found


def write_evidence(log_path: Path, folder: Path, seed: int, links_edit: Edit = same, log_edit: EditLog = same) -> None:
    """A log and its chain that fit each other, after an edit of each, as the run's own code would write them."""
    log = [record for record in map(log_edit, records(seed, batch_size=BATCH, evaluations=EVALUATIONS)) if record]
    chain = [link for link in map(links_edit, links(records(seed, batch_size=BATCH), seed)) if link is not None]
    lines, head = [], NOTHING
    for link in chain:
        line, head = encode_link(link, head)
        lines.append(line)
    stop = next(place for place, record in enumerate(log) if record["key"] == "run_stop")
    stamp = {**log[stop], "event_type": "POINT_IN_TIME", "key": "evidence", "value": head, "metadata": {}}
    log_path.write_text(log_text([*log[:stop], stamp, *log[stop:]]))
    digest = hashlib.sha256(log_path.read_bytes()).hexdigest()
    now = log[-1]["time_ms"]
    last = max((link.step for link in chain), default=0)
    lines.append(encode_link(EndLink(last, now, "success", digest), head)[0])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / EVIDENCE).write_bytes(b"".join(line + b"\n" for line in lines))
    config = {"benchmark": dataclasses.asdict(BENCHMARK), "seed": seed, "precision": "bf16", "result_number": 0}
    (folder / "config.json").write_text(json.dumps(config))


def evidenced_package(folder: Path) -> Path:
    """The package of the fixture, with evidence of each run."""
    package = write_package(folder)
    for number, seed in enumerate(SEEDS):
        write_run(package, number, seed)
    return package


def write_run(package: Path, number: int, seed: int, links_edit: Edit = same, log_edit: EditLog = same) -> None:
    """One of its runs anew."""
    log = package / f"results/{SYSTEM}/gpt3/result_{number}.txt"
    write_evidence(log, package / PLACE / f"result_{number}", seed, links_edit, log_edit)
