"""``preflight --first-contact``: the first command on a machine with a GPU."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from stage.errors import InputError


@dataclass(frozen=True)
class FirstContactCommand:
    """Everything that only a GPU can tell, in half an hour of one: each kernel by itself and a small training against
    the CPU, steps of the benchmark's layers, rates, memory, profiles, preflight. A part that fails costs no other, and
    the result file is written anew after each.

    Example: python -m benchmark preflight --first-contact --output first_contact

    Exit status: 0 all that a run needs works, 1 something failed, 2 bad input, such as no GPU.
    """

    first_contact: bool = False
    """Do all this, rather than check this machine alone."""
    output: Path = Path("runs/first_contact")
    """Folder for contact.json, and a log and the results of each part."""
    minutes: float = 30.0
    """Parts for which there is no time are left out."""
    device: Literal["cuda", "cpu"] = "cuda"
    """cpu: whether the command itself runs; a few features, and a small slice."""
    json: bool = False
    """Print contact.json at the end, too."""

    def run(self) -> int:
        from benchmark.preflight.first_contact.first_contact import RESULT, first_contact

        if not 0 < self.minutes <= 1440:
            raise InputError(f"minutes {self.minutes:g}: expected more than 0, at most 1,440; change --minutes")
        found = first_contact(self.device, self.output, self.minutes)
        if self.json:
            print(json.dumps({"passed": found.passed, **asdict(found)}))
        else:
            print(f"{'all works' if found.passed else 'NOT all works'}: {self.output / RESULT}")
        return int(not found.passed)
