"""Where evidence does not hold."""

from dataclasses import dataclass

MOST_SHOWN = 300
"""Characters of a value."""


@dataclass(frozen=True)
class Mismatch:
    """One thing that is not what it must be."""

    step: int | None
    """Optimizer step since the initial checkpoint; None: it is about the run as a whole."""
    what: str
    recorded: str
    """What the run says."""
    found: str
    """What is."""
    far: str = ""
    """How far apart they are, and how far they may be."""
    log_line: int | None = None
    """Line of the MLPerf log that it is about; None: it is about the evidence."""

    def line(self) -> str:
        """For people: nothing in it that a terminal would obey, and not too long."""
        where = "" if self.step is None else f"step {self.step}: "
        far = f" ({self.far})" if self.far else ""
        return f"{where}{printable(self.what)}: recorded {printable(self.recorded)}, found {printable(self.found)}{far}"


def printable(text: str) -> str:
    """A stranger's text, shortened, with its control characters written out."""
    shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown)
