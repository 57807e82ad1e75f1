"""Runs that went on after a restart, or lost time otherwise: 3 minutes to 8 hours, in one run or in all. None of it may
be rejected, and all of it is one question."""

from collections.abc import Callable

from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import Record
from tests.benchmark.review.trials.log_changes import ends, trained
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import TrialTable

honest = TrialTable()
MINUTE_MS = 60_000
LOST = (("3 minutes", 3), ("40 minutes", 40), ("8 hours", 480))
Loss = Callable[[Log, int, int], None]
"""Changes a log: in which block time is lost, and how much of it in ms."""


def _silent(log: Log, block: int, lost_ms: int) -> None:
    """Nothing is logged but the time that passed."""
    log.shift(log.place("eval_accuracy", block), lost_ms)


def _restart(log: Log, block: int, lost_ms: int, at_block: int | None = None) -> int:
    """A restart logged at the first record of a block; where it is."""
    place = log.place("eval_accuracy", block - 1) + 1
    while log.records[place]["key"] in ("eval_stop", "tracked_stats"):
        place += 1
    progress = trained(log.records[log.place("eval_accuracy", (at_block or block) - 1)])
    log.shift(place, lost_ms)
    restart = log.copied(place, key="restart", value=1, event_type="POINT_IN_TIME")
    restart["metadata"] = {"file": "x.py", "lineno": 1, "step": progress}
    log.records.insert(place, restart)
    return place


def _logged(log: Log, block: int, lost_ms: int) -> None:
    """As this harness does it: the log is cut back to the checkpoint, and goes on."""
    _restart(log, block, lost_ms)


def _evaluated_again(log: Log, block: int, lost_ms: int) -> None:
    """From a checkpoint before the last evaluation, which comes again, with the same value."""
    before, last = log.place("eval_accuracy", block - 2) + 1, log.place("eval_accuracy", block - 1) + 1
    again = [log.copied(place) for place in range(before, last)]
    taken = log.records[last - 1]["time_ms"] - log.records[before - 1]["time_ms"]
    log.shift(last, lost_ms + taken)
    for record in again:
        record["time_ms"] += lost_ms + taken
    log.records[last:last] = again


def _evaluated_again_otherwise(log: Log, block: int, lost_ms: int) -> None:
    """The same, on other nodes, where sums come in another order."""
    _evaluated_again(log, block, lost_ms)
    log.records[log.place("eval_accuracy", block)]["value"] += 3e-6


def _interrupted(log: Log, block: int, lost_ms: int) -> None:
    """Within an evaluation, which is begun again; before it where a log has no eval_start."""
    keys = [record["key"] for record in log.records]
    place = log.place("eval_start", block) if "eval_start" in keys else log.place("eval_accuracy", block)
    log.shift(place, 1)
    again: list[Record] = [log.copied(place)] if keys[place] == "eval_start" else []
    log.shift(place, lost_ms)
    for record in again:
        record["time_ms"] -= 1
    log.records[place:place] = again


def _caches_cleared(log: Log, block: int, lost_ms: int) -> None:
    """The new attempt clears caches and logs it."""
    place = _restart(log, block, lost_ms)
    log.records.insert(place, log.copied(log.place("cache_clear"), time_ms=log.records[place]["time_ms"] - 5))


def _other_clock(log: Log, block: int, lost_ms: int) -> None:
    """It goes on on a node whose clock is 4 s behind."""
    log.shift(_restart(log, block, lost_ms), -4_000)


def _steps_lost(log: Log, block: int, lost_ms: int) -> None:
    """Step times of the attempt that broke off were not written."""
    start, stop = log.place("eval_accuracy", block - 1), log.place("eval_accuracy", block)
    inside = [record for record in log.records[start:stop] if record["key"] == "tracked_stats"][:5]
    log.records = [record for record in log.records if not any(record is one for one in inside)]
    _restart(log, block, lost_ms)


HOW: tuple[tuple[str, Loss], ...] = (
    ("silently", _silent),
    ("by a restart logged", _logged),
    ("by a restart that evaluates again", _evaluated_again),
    ("by a restart that evaluates again on other nodes", _evaluated_again_otherwise),
    ("in an interrupted evaluation", _interrupted),
    ("by a restart that clears caches", _caches_cleared),
    ("by a restart on a node of another clock", _other_clock),
    ("by a restart without its step times", _steps_lost),
)


def _one_or_all(change: Loss, lost_ms: int, every: bool) -> Callable[[SubmissionOnTrial], None]:
    def lose(one: SubmissionOnTrial) -> None:
        for number, log in enumerate(one.logs if every else one.logs[1:2]):
            change(log, 3 + (4 + 3 * number) % (len(ends(log)) - 5), lost_ms + 17 * number)

    return lose


for _how, _change in HOW:
    for _words, _minutes in LOST:
        for _runs, _every in (("one run", False), ("all runs", True)):
            honest(f"{_words} lost {_how}, in {_runs}")(_one_or_all(_change, _minutes * MINUTE_MS, _every))


@honest("four restarts in a run, a block and hours apart")
def _four(one: SubmissionOnTrial) -> None:
    for number, block in enumerate((4, 5, 8, 10)):
        _logged(one.logs[0], block, (3 + 60 * number) * MINUTE_MS)


@honest("stopped in the evening, continued the next morning, in all runs")
def _next_day(one: SubmissionOnTrial) -> None:
    one.each(lambda log: _logged(log, 12, 14 * 60 * MINUTE_MS))


@honest("an hour lost in the first block")
def _first_block(one: SubmissionOnTrial) -> None:
    log = one.logs[2]
    log.shift(log.place("eval_accuracy"), 60 * MINUTE_MS)


@honest("an hour lost in the last block")
def _last_block(one: SubmissionOnTrial) -> None:
    log = one.logs[2]
    log.shift(log.place("eval_accuracy", -1), 60 * MINUTE_MS)


@honest("a stall of five minutes in every second block of a run")
def _every_second(one: SubmissionOnTrial) -> None:
    for block in range(1, len(ends(one.logs[1])) - 4, 2):
        _silent(one.logs[1], block, 5 * MINUTE_MS)


@honest("a stall of five minutes in most blocks of a run")
def _most(one: SubmissionOnTrial) -> None:
    for block in range(3, len(ends(one.logs[1])) - 4):
        _silent(one.logs[1], block, 5 * MINUTE_MS)
