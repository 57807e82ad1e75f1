"""Damage a run with evidence at random, and check it: each ends in mismatches or one line, never in a traceback.

python -m tests.benchmark.replay.fuzz_replay RUN_DIR --rounds 2000
"""

import argparse
import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.evidence.chain_links import EVIDENCE, NOTHING
from benchmark.replay.recorded_config import Replacements
from benchmark.replay.replay_run import ReplayOptions, replay
from stage.errors import InputError

ODD: list[Any] = [None, True, -1, 0, 1, 2**62, 10**400, 1e308, 1e-310, "nan", "inf", "", "x" * 5000, "\x1b[31m", [], {}]
ODD += [[1], {"a": 1}, "../../etc/passwd", "AAAA", 0.5, -(10**18), "0" * 16, NOTHING]


def damaged_value(value: Any, chance: random.Random) -> Any:
    """``value`` with one thing in it replaced, left out or doubled."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        if chance.random() < 0.1:
            return {key: one for key, one in value.items() if key != name}
        return {**value, name: damaged_value(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.6:
        place = chance.randrange(len(value))
        return [*value[:place], damaged_value(value[place], chance), *value[place + chance.randrange(2) :]]
    return chance.choice(ODD)


def damage_links(run_dir: Path, chance: random.Random) -> None:
    """Damage one link, and sign the chain anew."""
    path = run_dir / EVIDENCE
    links = [json.loads(line) for line in path.read_text().splitlines()]
    place = chance.randrange(len(links))
    links[place] = damaged_value(links[place], chance)
    if chance.random() < 0.2:
        links.insert(chance.randrange(len(links)), links[chance.randrange(len(links))])
    lines, head = [], NOTHING
    for link in links:
        fields = dict(link) if isinstance(link, dict) else {"kind": link}
        fields.pop("digest", None)
        if place and "previous" in fields:
            fields["previous"] = head
        body = json.dumps(fields, separators=(",", ":")).encode()[:-1]
        head = hashlib.sha256(body).hexdigest()
        lines.append(body + f',"digest":"{head}"}}\n'.encode())
    path.write_bytes(b"".join(lines))


def damage_bytes(run_dir: Path, chance: random.Random) -> None:
    """Overwrite, cut or double some bytes of a file."""
    path = run_dir / chance.choice([EVIDENCE, "config.json", "result_0.txt"])
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content))
    size = chance.choice([1, 8, 300])
    content[at : at + chance.choice([0, size])] = chance.choice([b"", chance.randbytes(size), bytes(content[:size])])
    path.write_bytes(content)


def damage_config(run_dir: Path, chance: random.Random) -> None:
    """Damage a field of the configuration."""
    path = run_dir / "config.json"
    path.write_text(json.dumps(damaged_value(json.loads(path.read_text()), chance)))


def damage_log(run_dir: Path, chance: random.Random) -> None:
    """Damage a record of the log."""
    path = run_dir / "result_0.txt"
    lines = path.read_text().splitlines()
    place = chance.randrange(len(lines))
    record = damaged_value(json.loads(lines[place].removeprefix(":::MLLOG ")), chance)
    lines[place] = f":::MLLOG {json.dumps(record)}"
    path.write_text("\n".join(lines) + "\n")


DAMAGES: list[Callable[[Path, random.Random], None]] = [
    damage_links,
    damage_links,
    damage_bytes,
    damage_config,
    damage_log,
]


def one_round(run_dir: Path, seed: int) -> str:
    """What came of it: "refused", "mismatches" or "holds". Raises what must not be raised."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(run_dir, Path(name) / "run", ignore=shutil.ignore_patterns("checkpoints")))
        chance.choice(DAMAGES)(folder, chance)
        try:
            found = replay(ReplayOptions(folder, "1:6", Replacements(), without_training=True))
        except (InputError, OSError) as error:  # both end the command in one line
            assert len(str(error)) < 5000, "a line that long"
            return "refused"
        assert found is not None
        lines = [one.line() for one in found.deviations]
        assert all(line.isprintable() and len(line) < 1500 for line in lines)
        return "mismatches" if lines else "holds"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts: dict[str, int] = {}
    for seed in range(given.seed, given.seed + given.rounds):
        try:
            came = one_round(given.run_dir, seed)
        except Exception as error:
            came = f"{type(error).__name__}: {error}"[:100]
            print(f"seed {seed}: {came}")
        counts[came] = counts.get(came, 0) + 1
    print(counts)


if __name__ == "__main__":
    main()
