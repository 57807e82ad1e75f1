"""Runs that went on after a restart, or lost time otherwise: one question, and no error."""

from collections.abc import Callable
from functools import partial

from tests.benchmark.judging.review.fixture import Log, Submission
from tests.benchmark.judging.review.submission_changes import MINUTE_MS, Change, Trial, each, run, trained


def _silent(log: Log, block: int, lost_ms: int) -> None:
    """Log nothing but the time that passed."""
    log.shift(log.place("eval_accuracy", block), lost_ms)


def _restart(log: Log, block: int, lost_ms: int) -> int:
    """Log a restart at the first record of a block, as this harness does, and return where it is."""
    place = log.place("eval_accuracy", block - 1) + 1
    while log.records[place]["key"] in ("eval_stop", "tracked_stats"):
        place += 1
    progress = trained(log.records[log.place("eval_accuracy", block - 1)])
    log.shift(place, lost_ms)
    restart = log.copied(place, key="restart", value=1, event_type="POINT_IN_TIME")
    restart["metadata"] = {"file": "x.py", "lineno": 1, "step": progress}
    log.records.insert(place, restart)
    return place


def _evaluated_again(log: Log, block: int, lost_ms: int, moved: float = 0.0) -> None:
    """Restart from a checkpoint before the last evaluation, which comes again; on other nodes with a sum in another
    order."""
    before, last = (place + 1 for place in log.places("eval_accuracy")[block - 2 : block])
    again = [log.copied(place) for place in range(before, last)]
    taken = log.records[last - 1]["time_ms"] - log.records[before - 1]["time_ms"]
    log.shift(last, lost_ms + taken)
    for record in again:
        record["time_ms"] += lost_ms + taken
    again[-1]["value"] += moved
    log.records[last:last] = again


def _interrupted(log: Log, block: int, lost_ms: int) -> None:
    """Interrupt an evaluation, which is begun again; where a log has no eval_start, stop before it."""
    key = "eval_start" if log.places("eval_start") else "eval_accuracy"
    place = log.place(key, block)
    again = [log.copied(place)] if key == "eval_start" else []
    log.shift(place, lost_ms + 1)
    log.records[place:place] = again


def _caches_cleared(log: Log, block: int, lost_ms: int) -> None:
    """Clear the caches again at the restart, and log it."""
    place = _restart(log, block, lost_ms)
    log.records.insert(place, log.copied(log.place("cache_clear"), time_ms=log.records[place]["time_ms"] - 5))


def _steps_lost(log: Log, block: int, lost_ms: int) -> None:
    """Lose the step times of the attempt that broke off."""
    start, stop = log.place("eval_accuracy", block - 1), log.place("eval_accuracy", block)
    gone = {id(one) for one in [each for each in log.records[start:stop] if each["key"] == "tracked_stats"][:5]}
    log.records = [record for record in log.records if id(record) not in gone]
    _restart(log, block, lost_ms)


LOSSES: tuple[tuple[str, Callable[[Log, int, int], object]], ...] = (
    ("silently", _silent),
    ("by a restart logged", _restart),
    ("by a restart that evaluates again", _evaluated_again),
    ("by a restart that evaluates again on other nodes", partial(_evaluated_again, moved=3e-6)),
    ("in an interrupted evaluation", _interrupted),
    ("by a restart that clears caches", _caches_cleared),
    (
        "by a restart on a node whose clock is 4 s behind",
        lambda log, block, lost_ms: log.shift(_restart(log, block, lost_ms), -4_000),
    ),
    ("by a restart without its step times", _steps_lost),
)
HOW_MUCH = (("3 minutes", 3, (1,)), ("40 minutes", 40, (0, 1, 2)), ("8 hours", 480, (1,)))
"""Minutes that are lost, and the runs in which they are."""


def _lost(change: Callable[[Log, int, int], object], minutes: int, runs: tuple[int, ...]) -> Change:
    def lose(one: Submission) -> None:
        for number in runs:
            log = one.logs[number]
            block = 3 + (4 + 3 * number) % (len(log.values) - 5)
            change(log, block, minutes * MINUTE_MS + 17 * number)

    return lose


def _every(step: int) -> Callable[[Log], None]:
    """Stall five minutes in every block, or every second."""

    def change(log: Log) -> None:
        for block in range(1 if step > 1 else 3, len(log.values) - 4, step):
            _silent(log, block, 5 * MINUTE_MS)

    return change


def _four(log: Log) -> None:
    for number, block in enumerate((4, 5, 8, 10)):
        _restart(log, block, (3 + 60 * number) * MINUTE_MS)


RESTARTS = [
    *(
        Trial(f"{words} lost {how}, in {len(runs)} of the runs", _lost(change, minutes, runs))
        for how, change in LOSSES
        for words, minutes, runs in HOW_MUCH
    ),
    Trial("four restarts in a run, a block and hours apart", run(0, _four)),
    Trial(
        "stopped in the evening, continued the next morning, in all runs",
        each(lambda log: _restart(log, 12, 14 * 60 * MINUTE_MS)),
    ),
    Trial("an hour lost in the first block", run(2, lambda log: _silent(log, 0, 60 * MINUTE_MS))),
    Trial("an hour lost in the last block", run(2, lambda log: _silent(log, -1, 60 * MINUTE_MS))),
    Trial("a stall of five minutes in every second block of a run", run(1, _every(2))),
    Trial("a stall of five minutes in most blocks of a run", run(1, _every(1))),
]
