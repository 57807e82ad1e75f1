"""The result file of a first contact, rewritten after each part: what comes later can fail, or the machine be taken
away, and what was found stays."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from stage.outputs.publish import write_text

RESULT = "contact.json"
FORMAT = 1
Outcome = Literal["ok", "failed", "skipped", "left out"]


@dataclass(frozen=True)
class FeatureResult:
    """What became of one feature."""

    name: str
    outcome: Outcome
    found: str
    without: str
    """Of one that failed: what a run does without it; empty: it cannot."""
    seconds: float


@dataclass(frozen=True)
class PartResult:
    """What became of one part."""

    name: str
    outcome: Outcome
    found: str
    """In a line."""
    seconds: float
    details: Any = None
    """What its own result file holds, or its rows."""

    def line(self) -> str:
        return f"{self.outcome:<9}{self.name:<16}{self.seconds:6.0f} s  {self.found}"


@dataclass
class ContactResult:
    """Of all parts so far."""

    device: str
    torch: str
    began: str
    parts: list[PartResult] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(part.outcome in ("ok", "skipped") for part in self.parts)

    def add(self, part: PartResult, output: Path) -> None:
        """Write it, with all before it, and say it."""
        self.parts.append(part)
        text = json.dumps({"format": FORMAT, "passed": self.passed, **asdict(self)}, indent=1)
        write_text(output / RESULT, text + "\n")
        print(part.line(), flush=True)
