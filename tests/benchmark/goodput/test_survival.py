"""What a restart throws away."""

import math

from benchmark.goodput.survival import Survival, survival
from benchmark.goodput.wall_time import DatedEvent
from benchmark.results.recorded_events import RecordedEvent


def event(key: str, **fields: object) -> DatedEvent:
    return DatedEvent(0, RecordedEvent(0, key, None, fields), None)


def step(tokens: float, **fields: object) -> DatedEvent:
    return event("step", trained_tokens=tokens, **fields)


def evaluation(tokens: float) -> DatedEvent:
    return event("evaluation", trained_tokens=tokens)


def tokens_of(events: object) -> list[tuple[str, object]]:
    return [(done.event.key, done.event.fields["trained_tokens"]) for done in events]  # type: ignore[attr-defined]


def fate(*events: DatedEvent, unsaved_is_lost: bool = False) -> Survival:
    return survival(events, unsaved_is_lost=unsaved_is_lost)


def test_restart_throws_away_what_is_beyond_it() -> None:
    found = fate(step(10), evaluation(10), step(20), evaluation(20), event("restart", step=10), step(20))
    assert tokens_of(found.kept) == [("step", 10), ("step", 20)]
    assert tokens_of(found.lost) == [("evaluation", 20), ("step", 20)]


def test_run_begun_anew_throws_away_everything() -> None:
    found = fate(event("run_start"), step(10), step(20), event("run_start"), step(10))
    assert tokens_of(found.kept) == [("step", 10)]
    assert tokens_of(found.lost) == [("step", 20), ("step", 10)]


def test_what_is_done_again_was_lost_however_the_run_went_back() -> None:
    found = fate(step(10), evaluation(10), evaluation(10), step(20), step(30), step(20))
    assert tokens_of(found.kept) == [("step", 10), ("step", 20)]
    assert tokens_of(found.lost) == [("evaluation", 10), ("step", 30), ("step", 20)]


def test_work_beyond_the_last_whole_checkpoint_is_unsaved() -> None:
    done = (
        step(10), event("checkpoint", steps=1), step(20), event("checkpoint_written", steps=1), step(30),
        event("checkpoint", steps=3), evaluation(30),
    )  # fmt: skip
    running = fate(*done)
    assert (len(running.kept), running.lost, running.unsaved) == (3, [], 2)
    ended = fate(*done, unsaved_is_lost=True)
    assert tokens_of(ended.kept) == [("step", 10)]
    assert tokens_of(ended.lost) == [("evaluation", 30), ("step", 30), ("step", 20)]
    assert fate(*done, event("checkpoint_written", steps=3)).unsaved == 0
    again = fate(*done, event("checkpoint_written", steps=3), event("restart", step=10), step(20))
    assert again.unsaved == 1


def test_skipped_steps_count_as_lost_and_damage_as_nothing() -> None:
    odd = [step(math.nan), step(-1), step(10**400), event("step"), event("step", trained_tokens="7")]
    found = fate(step(10), step(20, skipped=True), *odd)
    assert tokens_of(found.kept) == [("step", 10)]
    assert tokens_of(found.lost) == [("step", 20)]
