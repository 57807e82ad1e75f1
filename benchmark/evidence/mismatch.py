"""Where evidence does not hold."""

from dataclasses import dataclass


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

    def line(self) -> str:
        """For people."""
        where = "" if self.step is None else f"step {self.step}: "
        far = f" ({self.far})" if self.far else ""
        return f"{where}{self.what}: recorded {self.recorded}, found {self.found}{far}"
