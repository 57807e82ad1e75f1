"""The endings are told apart by their exit statuses, which scripts rely on, and each says what follows."""

from benchmark.launch.endings import ENDINGS


def test_exit_status_of_each_ending_and_what_follows() -> None:
    assert {ending: (then.exit_status, then.action) for ending, then in ENDINGS.items()} == {
        "success": (0, "done"),
        "target not reached": (1, "done"),
        "bad input": (2, "stop"),
        "failed": (70, "again"),
        "interrupted": (75, "requeue"),
    }
