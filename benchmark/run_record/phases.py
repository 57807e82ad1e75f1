"""The phases that a process of a run goes through."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

Phase = Literal["start", "join", "load", "warm-up", "data", "passes", "update", "evaluation", "audit", "save", "end"]
"""start: opening the run folder and its inputs. join: meeting the other processes. load: weights and moments, the order
of samples. warm-up: steps on made-up tokens, before the clock. data: waiting for a step's token windows. passes:
forward and backward passes and the agreement on loss and norm. update: clipping and Adam, and whatever comes until the
next phase. save: the copy for a checkpoint."""

PHASES: tuple[Phase, ...] = get_args(Phase)


class PhaseObserver(Protocol):
    """An observer that is told whenever a process of a run enters a phase: heartbeat, profiler, the drills' faults."""

    def enter(self, phase: Phase, steps: int) -> None:
        """Note the phase and return at once. ``steps``: optimizer steps done since the initial checkpoint."""
        ...


class PhaseLog:
    """The observers of this process, each told of every phase in turn."""

    def __init__(self, *observers: PhaseObserver) -> None:
        self._observers = list(observers)

    def add(self, observer: PhaseObserver) -> None:
        self._observers.append(observer)

    def enter(self, phase: Phase, steps: int) -> None:
        for observer in self._observers:
            observer.enter(phase, steps)
