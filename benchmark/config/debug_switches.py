"""Switches that let a person see inside a run; each is off unless the person asks for it (docs/debugging.md)."""

import re
from dataclasses import dataclass
from typing import Literal

from stage.errors import InputError


@dataclass(frozen=True)
class DebugSwitches:
    """Each costs nothing while it is off."""

    profile: str | None = None
    """FIRST:LAST, steps: write a Chrome trace of each to RUN_DIR/profile."""
    profile_ranks: tuple[int, ...] = (0,)
    """Ranks that --profile traces."""
    nvtx: bool = False
    """Name phases and steps for NVIDIA's nsys; with --profile it records those steps alone, and no trace is written."""
    nccl_debug: Literal["WARN", "INFO", "TRACE"] | None = None
    """NCCL's log, a file for each process in RUN_DIR/attempts."""
    memory_snapshot: bool = False
    """Write down who holds the memory of a GPU that runs out of it, in RUN_DIR/attempts."""

    def __post_init__(self) -> None:
        steps = self.profiled_steps
        if steps is not None and not 0 < steps[0] <= steps[1]:
            raise InputError(f"profile {self.profile}: expected FIRST:LAST, 1 <= FIRST <= LAST, such as 10:12")
        if any(rank < 0 for rank in self.profile_ranks):
            raise InputError(f"profile_ranks {self.profile_ranks}: expected 0 or more; change --profile-ranks")

    @property
    def profiled_steps(self) -> tuple[int, int] | None:
        """The first and the last."""
        if self.profile is None:
            return None
        found = re.fullmatch(r"(\d{1,12}):(\d{1,12})", self.profile)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def for_gpus(self) -> list[str]:
        """Switches that are on and do nothing without a GPU."""
        on = {"--nvtx": self.nvtx, "--nccl-debug": self.nccl_debug, "--memory-snapshot": self.memory_snapshot}
        return [name for name, value in on.items() if value]
