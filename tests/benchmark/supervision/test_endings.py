"""The endings are told apart by their exit statuses, and every other status means that something failed."""

import pytest

from benchmark.supervision.endings import ENDINGS, Action, Ending, ending_of_status


@pytest.mark.parametrize(
    ("status", "ending", "action"),
    [
        (0, "success", "done"),
        (1, "target not reached", "done"),
        (2, "bad input", "stop"),
        (70, "failed", "again"),
        (75, "interrupted", "requeue"),
        (137, "failed", "again"),
    ],
)
def test_ending_of_a_status_and_what_follows(status: int, ending: Ending, action: Action) -> None:
    assert ending_of_status(status) == ending
    assert ENDINGS[ending].action == action
