"""Whole drills of the tiny benchmark: real training, real faults, compared to the bit with an undisturbed run."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.run_config import RunConfig
from benchmark.drills.catalogue.drill import Drill
from benchmark.drills.drill_result import judge, unequal
from benchmark.drills.drilled_run import Disturbed, Ended, run_to_its_end
from benchmark.drills.faults import Damage, Fault
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import Inputs

SAVE_INTERVAL = 3


def _config(inputs: Inputs, folder: Path, **fields: Any) -> RunConfig:
    system = system_of(2, start_limit_s=40.0, hang_floor_s=6.0)
    return inputs.config(
        folder / "run",
        system=system,
        save_interval=SAVE_INTERVAL,
        audit_interval=0,
        evidence=True,
        watchdog=True,
        **fields,
    )


@pytest.fixture(scope="module")
def undisturbed(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("undisturbed")
    ended = run_to_its_end(Disturbed(_config(inputs, folder)), folder)
    assert [decision.action for decision in ended.decisions] == ["done"]
    assert ended.aftermath.steps == 12
    assert len(ended.aftermath.losses) == 12
    assert len(ended.aftermath.evaluations) == 3
    return ended


DRILLS = {
    "killed while shards are written": ([Fault("kill", "call:shards", (5, 5), 1)], "killed: gone without a word", 2),
    "stopped": ([Fault("stop", "passes", (7, 7), 1)], r"T \(stopped\)", 2),
    "exception": ([Fault("raise", "update", (4, 4), 0)], "RuntimeError: injected", 2),
    "saved and continued": ([Fault("ask to stop", "passes", (4, 4), 1)], "saved and stopped", 2),
    "disk full": ([Fault("disk full", "call:shards", (3, 3), 0)], "could not be written: .*No space left", 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRILLS)
def test_run_heals_without_a_person(name: str, undisturbed: Ended, inputs: Inputs, tmp_path: Path) -> None:
    faults, words, attempts = DRILLS[name]
    drill = Drill(name, "", "", tuple(faults), words=(words,), attempts=attempts)
    ended = run_to_its_end(Disturbed(_config(inputs, tmp_path), drill.faults), tmp_path)
    result = judge(drill, ended, undisturbed.aftermath, save_interval=SAVE_INTERVAL, faults="")
    assert result.problems == ()
    assert result.equal
    assert result.next_loss_s is not None


@pytest.mark.slow
def test_the_same_error_twice_ends_the_run(undisturbed: Ended, inputs: Inputs, tmp_path: Path) -> None:
    faults = (Fault("raise", "update", (2, 2), 1, attempt=None),)
    ended = run_to_its_end(Disturbed(_config(inputs, tmp_path), faults), tmp_path)
    (decision,) = ended.decisions
    assert decision.action == "stop"
    assert "the same error came twice at the same step: given up" in decision.reason
    assert "rank 1" in decision.reason
    assert len(ended.aftermath.attempts) == 2
    assert unequal(ended.aftermath, undisturbed.aftermath)


@pytest.mark.slow
def test_options_of_the_first_attempt_and_damage_before_a_later_one(inputs: Inputs, tmp_path: Path) -> None:
    disturbed = Disturbed(
        _config(inputs, tmp_path),
        (Fault("kill", "passes", (4, 4), 0),),
        (Damage("delete all", 2),),
        first_options={"log_interval": 7},
    )
    ended = run_to_its_end(disturbed, tmp_path)
    assert [record.resumed_at for record in ended.aftermath.records] == [0, 0]
    assert ended.aftermath.finished == "success"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["log_interval"] == 1000
