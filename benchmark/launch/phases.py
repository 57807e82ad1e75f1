"""What a process of a run can be doing."""

from __future__ import annotations

from typing import Literal, Protocol

Phase = Literal["start", "join", "load", "warm-up", "data", "passes", "update", "evaluation", "audit", "save", "end"]
"""start: opening the run folder and its inputs. join: meeting the other processes. load: weights and moments, the order
of samples. warm-up: steps on made-up tokens, before the clock. data: waiting for a step's token windows. passes:
forward and backward passes and the agreement on loss and norm. update: clipping and Adam, and whatever comes until the
next phase. save: the copy for a checkpoint."""

PHASES: tuple[Phase, ...] = (
    "start", "join", "load", "warm-up", "data", "passes", "update", "evaluation", "audit", "save", "end",
)  # fmt: skip


class PhaseObserver(Protocol):
    """Is told whenever a process of a run enters a phase: heartbeat, profiler, the drills' faults."""

    def enter(self, phase: Phase, steps: int) -> None:
        """``steps``: optimizer steps since the initial checkpoint that are done. Must return at once."""
        ...


class PhaseLog:
    """The observers of this process, told in turn."""

    def __init__(self, *observers: PhaseObserver) -> None:
        self._observers = list(observers)

    def add(self, observer: PhaseObserver) -> None:
        self._observers.append(observer)

    def enter(self, phase: Phase, steps: int) -> None:
        for observer in self._observers:
            observer.enter(phase, steps)
