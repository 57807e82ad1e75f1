"""A new submission that looks like a published one: its records, with values, times, seeds and names drawn anew.

Values: the median curve of the batch size, an offset of the run, and noise as published runs have it. Times: block by
block those of another block of the run, each delay with noise of its own, all of it a little faster or slower. So no
rule about copies has anything to find, and all others have what a real system writes.
"""

import itertools
import json
import random
from pathlib import Path
from typing import Any

from benchmark.results.mllog import TOKEN
from benchmark.results.run_summary import STEP_TIMING, VALIDATION_TIMING
from benchmark.review.rules.curve_rules import CURVES, expected
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import Record
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial

WEEK_MS = 7 * 86_400_000
LAST_VALUE = (2.6884, 2.68995)
ORG = "Northwind"


def renewed(system: Path, seed: int) -> SubmissionOnTrial:
    """From ``ROUND/SUBMITTER/results/SYSTEM`` of a published round."""
    draw = random.Random(seed)
    description = json.loads((system.parents[1] / "systems" / f"{system.name}.json").read_text())
    name = f"nw_{system.name.split('_')[0]}"
    description |= {"submitter": ORG, "system_name": name, "status": "Available on-premise"}
    logs = [Log(renewed_run(read(path), draw)) for path in sorted((system / "gpt3").glob("result_*.txt"))]
    start = logs[0].records[0]["time_ms"]
    for log in logs:  # one after the other
        log.shift(0, start - log.records[0]["time_ms"])
        start = log.records[-1]["time_ms"] + draw.randrange(10**5, 10**6)
    return SubmissionOnTrial(ORG, name, logs, description)


def published(system: Path, benchmark: str) -> SubmissionOnTrial:
    """As it was handed in."""
    description = json.loads((system.parents[1] / "systems" / f"{system.name}.json").read_text())
    paths = sorted((system / benchmark).glob("result_*.txt"))
    logs = [Log(read(path)) for path in paths]
    return SubmissionOnTrial(system.parents[1].name, system.name, logs, description, benchmark)


def read(path: Path) -> list[Record]:
    """Its records, without other programs' output."""
    lines = path.read_text("latin-1").splitlines()
    return [json.loads(line.rpartition(TOKEN)[2]) for line in lines if TOKEN in line]


def renewed_run(run: list[Record], draw: random.Random) -> list[Record]:
    again = _with_times(run, draw)
    log = Log(again)
    log.set("seed", draw.randrange(1 << 31))
    for key, name in (("submission_org", ORG), ("submission_platform", "NW-cluster"), ("submission_status", "onprem")):
        log.set(key, name)
    size = log.records[log.place("global_batch_size")]["value"]
    places = [place for place, record in enumerate(again) if record["key"] == "eval_accuracy"]
    tokens = [again[place]["metadata"]["epoch_num"] for place in places]
    for place, value in zip(places, new_values(size, tokens, draw), strict=True):
        again[place]["value"] = value
    return log.records


def new_values(size: float, tokens: list[float], draw: random.Random) -> list[float]:
    noise, values = 0.0, []
    for place, count in enumerate(tokens):
        noise = 0.5 * noise + draw.gauss(0, 1.7e-4)
        values.append(
            expected(CURVES["gpt3"], size, count)
            + noise
            + draw.gauss(0, 1e-4)
            + (6e-4 if place == 0 else 0) * draw.gauss(0, 1)
        )
    offset = draw.uniform(*LAST_VALUE) - values[-1]
    values = [value + offset for value in values]
    return [max(value, 2.69 + draw.uniform(2e-5, 4e-4)) for value in values[:-1]] + values[-1:]


def _with_times(run: list[Record], draw: random.Random) -> list[Record]:
    """Delays of blocks put into other blocks of as many records; step times follow their delays."""
    keys = [record["key"] for record in run]
    ends = [place for place, key in enumerate(keys) if key == "eval_accuracy"]
    blocks = [range(before + 1, after + 1) for before, after in itertools.pairwise(ends)]
    by_shape: dict[tuple[str, ...], list[range]] = {}
    for block in blocks:
        by_shape.setdefault(tuple(keys[place] for place in block), []).append(block)
    source: dict[int, int] = {}
    for block in blocks:
        other = draw.choice(by_shape[tuple(keys[place] for place in block)])
        source |= dict(zip(block, other, strict=True))
    pace = draw.uniform(0.98, 1.03)
    now = run[0]["time_ms"] + draw.randrange(1, 9) * WEEK_MS + draw.randrange(WEEK_MS)
    start = keys.index("run_start")
    again = [{**record, "metadata": dict(record["metadata"])} for record in run]
    exact = float(now)
    for place, record in enumerate(again):
        old = source.get(place, place)
        delay = run[old]["time_ms"] - run[old - 1]["time_ms"] if place else 0
        stretch = (pace if place > start else 1) * (1 + draw.gauss(0, 3e-4))
        exact += delay * stretch
        record["time_ms"] = round(exact)
        if record["key"] == "tracked_stats":
            record["value"] = {name: _scaled(name, value, run[old], stretch) for name, value in record["value"].items()}
    begun = again[start]["time_ms"]
    ended = again[keys.index("run_stop")]["time_ms"]
    for record in again:
        if record["key"] == "tracked_stats" and "throughput" in record["value"]:
            record["value"]["throughput"] *= (run[keys.index("run_stop")]["time_ms"] - run[start]["time_ms"]) / (
                ended - begun
            )
    return again


def _scaled(name: str, value: Any, old: Record, stretch: float) -> Any:
    timed = name in (*STEP_TIMING, *VALIDATION_TIMING)
    return old["value"].get(name, value) * stretch if timed and isinstance(value, float) else value
