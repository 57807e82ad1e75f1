"""Where attempts leave what they have to say."""

import dataclasses
import json
from pathlib import Path

from benchmark.launch.attempt_folder import (
    AttemptEnd,
    AttemptStart,
    all_attempts,
    attempt_path,
    new_attempt,
    raise_alarm,
    read_end,
    read_start,
    write_end,
    write_start,
)


def started(attempt: str, started_s: float, resumed_at: int | None = None) -> AttemptStart:
    return AttemptStart(attempt, None, None, None, started_s, resumed_at, ("n1", "n2"))


def test_attempts_come_in_the_order_they_began(tmp_path: Path) -> None:
    assert all_attempts(tmp_path) == []
    assert [new_attempt(tmp_path), new_attempt(tmp_path)] == ["0001", "0002"]
    for name, second in (("0001", 30.0), ("torchrun-x-0", 20.0), ("0002", 10.0)):
        attempt_path(tmp_path, name).mkdir(exist_ok=True)
        write_start(attempt_path(tmp_path, name), started(name, second))
    assert [entry.name for entry in all_attempts(tmp_path)] == ["0002", "torchrun-x-0", "0001"]
    assert new_attempt(tmp_path) == "0003"
    assert all_attempts(tmp_path)[-1].name == "0003"  # where nothing was written yet, its folder's time counts


def test_what_was_written_is_read_and_damage_is_nothing(tmp_path: Path) -> None:
    assert (read_start(tmp_path), read_end(tmp_path)) == (None, None)
    start, end = started("0001", 5.0, 16), AttemptEnd(9.0, 137, "again", "why", ("n2",))
    write_start(tmp_path, start)
    write_end(tmp_path, end)
    assert (read_start(tmp_path), read_end(tmp_path)) == (start, end)
    odd = json.dumps({**dataclasses.asdict(start), "started_s": "noon"})
    for content in (odd, "", "[1]", '{"attempt": "0001"}', '{"hosts": 3, "exclude": 3}', "\x00" * 10):
        (tmp_path / "attempt.json").write_text(content)
        (tmp_path / "ended.json").write_text(content)
        assert (read_start(tmp_path), read_end(tmp_path)) == (None, None)


def test_only_the_first_alarm_counts(tmp_path: Path) -> None:
    assert raise_alarm(tmp_path, "killed: rank 3")
    assert not raise_alarm(tmp_path, "lost connection: rank 0")
    assert (tmp_path / "alarm").read_text() == "killed: rank 3\n"
    assert [path.name for path in tmp_path.iterdir()] == ["alarm"]
