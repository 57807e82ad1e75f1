"""What a run left in its folder: log, configuration, events."""

import json
from pathlib import Path

import pytest

from benchmark.judging.results.recorded_run import read_recorded_run, settings
from benchmark.run_record.recorded_events import MOST_EVENT_BYTES, last_note, read_events
from foundation.errors import InputError
from tests.benchmark.judging.report.runs import MadeRun, write_run


def test_folder_and_log_are_the_same_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    run = read_recorded_run(folder)
    assert read_recorded_run(folder / "result_0.txt") == run
    assert (run.path.name, run.summary.seeds, run.config["precision"]) == ("result_0.txt", [7], "bf16")
    assert settings(run) == {
        "global batch size": 16,
        "sequence length": 128,
        "learning rate": 1e-3,
        "precision": "bf16",
        "device": "cpu",
        "nodes": 1,
        "devices per node": 2,
    }
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"time_ms": 17000, "key": "st')  # as a killed run leaves its last line
    steps = [sum(event.key == "step" for event in one.events) for one in (run, read_recorded_run(folder))]
    assert steps == [12, 12]


def test_target_is_the_configured_one_and_a_log_elsewhere_has_no_configuration(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    assert read_recorded_run(folder).target == 2.44
    config = json.loads((folder / "config.json").read_text())
    for target in (3.0, None):
        (folder / "config.json").write_text(json.dumps({**config, "benchmark": {"target_log_perplexity": target}}))
        assert read_recorded_run(folder).target == target
    run = read_recorded_run((folder / "result_0.txt").rename(folder / "result_1.txt"))  # config.json is of result 0
    assert (run.config, run.events, run.inputs, run.environment, run.digests) == ({}, (), {}, {}, {})


def test_digests_of_what_a_run_read(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    made.begin()
    made.emit("inputs", {"/c4/data": {"md5": {"data.bin": "5"}}, "/c4/ckpt": {"manifest": None}}, mlperf=False)
    assert read_recorded_run(made.end()).digests == {"data.bin": "5", "ckpt": None}


def test_folders_that_hold_no_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a result file, or a folder with one result_\*\.txt, not 0 of them"):
        read_recorded_run(tmp_path)
    folder = write_run(tmp_path / "run")
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json: not a run's configuration"):
        read_recorded_run(folder)


def test_lines_that_are_no_events_are_left_out_and_the_last_note_counts(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert read_events(path) == ()
    good = '{"time_ms": 1, "key": "step", "kind": "POINT", "value": null, "loss": 2.5, "skipped": true}'
    notes = [json.dumps({"time_ms": 1, "key": "inputs", "value": value}) for value in ({"a": 1}, {"a": 2}, 3)]
    lines = [good, "", "[" * 10**5, "[1]", '{"key": "step"}', '{"time_ms": 1.5, "key": "a"}', *notes, good[:40]]
    path.write_text("\n".join(lines))
    event, *others = read_events(path)
    assert (event.time_ms, event.key, event.value, event.fields) == (1, "step", None, {"loss": 2.5, "skipped": True})
    assert (event.number("loss"), event.number("skipped"), event.number("none")) == (2.5, None, None)
    assert (len(others), last_note(others, "inputs"), last_note(others, "environment")) == (3, {"a": 2}, {})
    with path.open("wb") as file:
        file.truncate(MOST_EVENT_BYTES + 1)
    with pytest.raises(InputError, match=r"events\.jsonl: 536,870,913 bytes, expected at most 536,870,912; move"):
        read_events(path)
