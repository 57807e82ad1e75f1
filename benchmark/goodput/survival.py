"""Which steps and evaluations of a run survived: a restart goes back to a checkpoint, and what was done beyond it is
done again."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.goodput.wall_time import DatedEvent

MOST_TOKENS = 10**18
"""A number beyond it is damage."""


@dataclass(frozen=True)
class Survival:
    """What became of them."""

    kept: Sequence[DatedEvent]
    """Steps that count, in their order."""
    lost: Sequence[DatedEvent]
    """Steps and evaluations that do not; skipped steps too, which updated nothing."""
    unsaved: int
    """Of the kept steps, those beyond the last checkpoint that is known to be whole."""


def survival(events: Sequence[DatedEvent], *, unsaved_is_lost: bool) -> Survival:
    """Go through a run's events. Progress is measured in tokens since the initial checkpoint.

    ``unsaved_is_lost``: the last attempt has ended before the run had, so that what it did beyond its last checkpoint
    is not left anywhere.
    """
    reading = _Reading()
    for event in events:
        reading.meet(event)
    unsaved = [done for done in reading.kept if _tokens(done) > reading.saved]
    if unsaved_is_lost:
        reading.forget(reading.saved)
    kept = [done for done in reading.kept if done.event.key == "step"]
    steps_unsaved = 0 if unsaved_is_lost else sum(done.event.key == "step" for done in unsaved)
    return Survival(kept, reading.lost, steps_unsaved)


class _Reading:
    def __init__(self) -> None:
        self.kept: list[DatedEvent] = []
        """Steps and evaluations so far, tokens rising."""
        self.lost: list[DatedEvent] = []
        self.saved = 0.0
        """Tokens of the newest whole checkpoint; 0: the initial one."""
        self._copied: dict[float, float] = {}
        """Tokens by steps of the checkpoints begun."""

    def meet(self, done: DatedEvent) -> None:
        event = done.event
        if event.key == "run_start":
            self.forget(0.0)
            self.saved = 0.0
        elif event.key == "restart":
            self.saved = event.number("step") or 0.0
            self.forget(self.saved)
        elif event.key == "checkpoint":
            self._copied[event.number("steps") or 0.0] = _tokens(self.kept[-1]) if self.kept else 0.0
        elif event.key == "checkpoint_written":
            self.saved = self._copied.get(event.number("steps") or 0.0, self.saved)
        elif event.key in ("step", "evaluation") and 0 < _tokens(done) < MOST_TOKENS:
            self._do(done)

    def forget(self, tokens: float) -> None:
        """What was done beyond never happened."""
        while self.kept and _tokens(self.kept[-1]) > tokens:
            self.lost.append(self.kept.pop())

    def _do(self, done: DatedEvent) -> None:
        """What was done before and is done now was lost, however the run came to go back."""
        again = done.event.key
        tokens = _tokens(done)
        self.forget(tokens)
        while self.kept and _tokens(self.kept[-1]) == tokens and (again == "step" or self.kept[-1].event.key == again):
            self.lost.append(self.kept.pop())
        if done.event.fields.get("skipped") is True:
            self.lost.append(done)
        else:
            self.kept.append(done)


def _tokens(done: DatedEvent) -> float:
    return done.event.number("trained_tokens") or 0.0
