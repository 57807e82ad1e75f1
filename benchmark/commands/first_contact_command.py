"""``preflight --first-contact``: the first command on a machine with a GPU."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from stage.errors import InputError


@dataclass(frozen=True)
class FirstContactCommand:
    """Test everything that needs a GPU, in half an hour of one: each kernel by itself and a small training against the
    CPU, steps of the benchmark's layers, rates, memory, profiles, preflight. If a part fails, the others still run; the
    result file is written anew after each part.

    Example: python -m benchmark preflight --first-contact --output first_contact

    Exit status: 0 everything that a run needs works, 1 something failed, 2 bad input, such as no GPU.
    """

    first_contact: bool = False
    """Run all these tests, rather than check this machine alone."""
    output: Path = Path("runs/first_contact")
    """Folder for contact.json, and a log and the results of each part."""
    benchmark: str = "gpt3_175b"
    """Benchmark whose layers the slices run."""
    minutes: float = 30.0
    """Minutes to spend; parts that do not fit are left out."""
    device: Literal["cuda", "cpu"] = "cuda"
    """cpu tests only that the command itself runs: a few features, and a small slice."""
    json: bool = False
    """Also print contact.json at the end."""

    def run(self) -> int:
        from benchmark.preflight.first_contact.first_contact import RESULT, first_contact

        if not 0 < self.minutes <= 1440:
            raise InputError(f"minutes {self.minutes:g}: expected more than 0, at most 1,440; change --minutes")
        found = first_contact(self.device, self.output, self.minutes, self.benchmark)
        if self.json:
            print(json.dumps({"passed": found.passed, **asdict(found)}))
        else:
            print(f"{'all works' if found.passed else 'NOT all works'}: {self.output / RESULT}")
        return int(not found.passed)
