"""Chain and configuration as a stranger may leave them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.evidence.chain_links import EVIDENCE
from benchmark.evidence.companion import CONFIG, Companion, config_deviations, read_companion
from stage.errors import InputError
from tests.benchmark.evidence.test_chain_links import BEGIN, step, write
from tests.benchmark.tiny import TINY

ASKED: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(TINY)))


def companion(folder: Path, **changes: Any) -> Companion:
    """Of a chain that was begun with TINY and seed 17."""
    write(folder / EVIDENCE, [dataclasses.replace(BEGIN, benchmark=ASKED), step(1)])
    (folder / CONFIG).write_text(json.dumps({"benchmark": ASKED, "seed": 17, "precision": "fp32", **changes}))
    return read_companion(folder)


def test_both_tell_the_same(tmp_path: Path) -> None:
    read = companion(tmp_path)
    assert read.benchmark == TINY
    assert [*config_deviations(read)] == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seed": 18}, "seed of config.json: recorded 18, found 17 in the chain"),
        ({"precision": None}, "precision of config.json: recorded None, found fp32 in the chain"),
        ({"benchmark": {**ASKED, "global_batch_size": 24}}, "global_batch_size of config.json: recorded 24, found 12"),
    ],
)
def test_another_configuration(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    (found,) = config_deviations(companion(tmp_path, **changes))
    assert found.line().startswith(expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"benchmark": None}, "benchmark: got "),
        ({"benchmark": {**ASKED, "train_samples": 10**12}}, "train_samples 1000000000000: expected 1 to 200,000,000"),
        ({"benchmark": {**ASKED, "eval_interval_samples": 0}}, "eval_interval_samples"),
    ],
)
def test_what_no_run_writes(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=expected):
        companion(tmp_path, **changes)


def test_a_large_configuration_is_not_read(tmp_path: Path) -> None:
    companion(tmp_path)
    (tmp_path / CONFIG).write_text(" " * ((1 << 20) + 1))
    with pytest.raises(InputError, match="more than 1,048,576"):
        read_companion(tmp_path)
