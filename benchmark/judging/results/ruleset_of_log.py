"""Choose the ruleset by which a log was made, where neither the user nor its path names a round.

A log of an earlier round breaks rules that came later: round 6.1 asks for nine more keys. So a log counts as of the
first round that was published after it was made, unless it has keys that only a later ruleset asks for.
"""

from datetime import UTC, datetime

from benchmark.judging.results.judged import Judged
from benchmark.run_record.events.mllog import ResultLog

PUBLISHED = {
    "3.0.0": datetime(2023, 6, 27, tzinfo=UTC),
    "3.1.0": datetime(2023, 11, 8, tzinfo=UTC),
    "4.0.0": datetime(2024, 6, 12, tzinfo=UTC),
    "4.1.0": datetime(2024, 11, 13, tzinfo=UTC),
    "5.0.0": datetime(2025, 6, 4, tzinfo=UTC),
    "5.1.0": datetime(2025, 11, 12, tzinfo=UTC),
    "6.0.0": datetime(2026, 6, 16, tzinfo=UTC),
}
"""Days on which MLCommons published the results of rounds: from 5.0 on by its press releases (GlobeNewswire). Before,
the day after the first commit of mlcommons/training_results_v3.1 and v4.0, and that of v4.1; v3.0 was committed on
19 June, and in the news of 27 June. Later rounds go by their keys."""


def ruleset_of_log(log: ResultLog, judged: Judged) -> str:
    """Return one of the benchmark's rulesets: the newest, unless the log is older by its keys and its first time."""
    newest = judged.rulesets[-1]
    later_keys = {*judged.at(newest).configuration} - {*judged.at(judged.rulesets[0]).configuration}
    if not log.events or any(log.all(key) for key in later_keys):
        return newest
    made_ms = min(event.time_ms for event in log.events)
    for ruleset in judged.rulesets:
        if ruleset in PUBLISHED and made_ms < PUBLISHED[ruleset].timestamp() * 1000:
            return ruleset
    return newest
