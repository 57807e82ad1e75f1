"""One damage each to a package without fault: what it does, which rule must catch it, and where."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.results.judged import GPT3
from tests.benchmark.review.fixture import SEEDS, SYSTEM, Record, as_text, records, write_package

RESULTS = f"results/{SYSTEM}/gpt3"
LOG = f"{RESULTS}/result_1.txt"
DESCRIPTION = f"systems/{SYSTEM}.json"
T = 50_331_648
"""Tokens between evaluations at batch size 2048."""


@dataclass(frozen=True)
class Damage:
    """A package spoilt in one way."""

    name: str
    rule: str
    """That must find it; beginning with "?": as a question, else as an error."""
    path: str
    """Where, relative to the package."""
    spoil: Callable[[Path], int | None]
    """Do it; returns the line it is in, None where any will do."""


def spoilt(damage: Damage, folder: Path) -> tuple[Path, int | None]:
    """A package with that damage, and the line it is in."""
    package = write_package(folder)
    return package, damage.spoil(package)


class Log:
    """The middle run, to be changed."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def place(self, key: str, number: int = 0) -> int:
        found = [place for place, record in enumerate(self.records) if record["key"] == key]
        return found[number]

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

    def without(self, key: str) -> None:
        self.records = [record for record in self.records if record["key"] != key]

    def copied(self, place: int, **changes: Any) -> Record:
        return {**self.records[place], "metadata": dict(self.records[place]["metadata"]), **changes}

    def shift(self, place: int, milliseconds: int) -> None:
        """Everything from ``place`` on is so much later."""
        for record in self.records[place:]:
            record["time_ms"] += milliseconds


def in_log(change: Callable[[Log], int | None]) -> Callable[[Path], int | None]:
    def spoil(package: Path) -> int | None:
        log = Log(records(SEEDS[1]))
        line = change(log)
        (package / LOG).write_text(as_text(log.records))
        return line

    return spoil


def in_text(change: Callable[[list[str]], int | None]) -> Callable[[Path], int | None]:
    def spoil(package: Path) -> int | None:
        lines = (package / LOG).read_text().splitlines()
        line = change(lines)
        (package / LOG).write_text("".join(f"{text}\n" for text in lines))
        return line

    return spoil


def in_runs(make: Callable[[int], list[Record]]) -> Callable[[Path], int | None]:
    """All three runs made anew."""

    def spoil(package: Path) -> None:
        for number in range(3):
            (package / RESULTS / f"result_{number}.txt").write_text(as_text(make(SEEDS[number])))

    return spoil


def in_description(change: Callable[[dict[str, Any]], str | None]) -> Callable[[Path], int | None]:
    """``change`` names the field it changed."""

    def spoil(package: Path) -> int:
        path = package / DESCRIPTION
        content = json.loads(path.read_text())
        name = change(content)
        path.write_text(json.dumps(content, indent=1) + "\n")
        lines = path.read_text().splitlines()
        return 1 if name is None else next(n for n, line in enumerate(lines, 1) if f'"{name}":' in line)

    return spoil


def all_damages() -> list[Damage]:
    from tests.benchmark.review import damaged_logs, damaged_packages

    return [*damaged_logs.damages(), *damaged_packages.damages()]


def missing_keys() -> Iterator[Damage]:
    once = (*GPT3.configuration[::6], "init_stop", "train_samples", "cache_clear")

    def remove(key: str) -> Callable[[Path], int | None]:
        return in_log(lambda log: log.without(key))

    for key in once:
        yield Damage(f"no {key}", "key.present", LOG, remove(key))
    yield Damage("no seed", "seed.logged", LOG, remove("seed"))
