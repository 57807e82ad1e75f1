"""What a run left in its folder: log, configuration, events."""

import json
from pathlib import Path

import pytest

from benchmark.judging.results.recorded_run import read_recorded_run, settings
from benchmark.run_record.events.recorded_events import RecordedEvents
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
    assert (run.config, run.events, run.inputs, run.environment, run.digests) == ({}, RecordedEvents(), {}, {}, {})


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
