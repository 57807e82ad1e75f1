"""What Weights & Biases is given; how it is resumed and sent is its library's own."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmark.events.weights_and_biases import WeightsAndBiases
from stage.errors import InputError
from tests.benchmark.events.recorder import event

STEP = {"loss": 2.75, "grad_norm": 0.25, "mfu": None, "skipped": False}


class StandIn(ModuleType):
    """Stands in for wandb: it writes down what it is told."""

    Settings = SimpleNamespace

    def __init__(self) -> None:
        super().__init__("wandb")
        self.refuses = False
        self.runs: list[dict[str, Any]] = []
        self.told: list[Sequence[Any]] = []
        self.summary: dict[str, str] = {}

    def setup(self) -> Any:
        return SimpleNamespace(settings=SimpleNamespace(project=None, run_name=None))

    def init(self, **options: Any) -> Any:
        if self.refuses:
            raise RuntimeError("api_key not configured")
        self.runs.append(options)
        return self

    def define_metric(self, name: str, step_metric: str) -> None:
        self.told.append(("metric", name, step_metric))

    def log(self, figures: dict[str, Any], step: int) -> None:
        self.told.append((step, figures))

    def finish(self) -> None:
        self.told.append(("finish",))


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    (tmp_path / "config.json").write_text(json.dumps({"benchmark": {"name": "tiny"}}))
    return stand_in


def test_figures_and_lines(wandb: StandIn, tmp_path: Path) -> None:
    sink = WeightsAndBiases(tmp_path, "offline")
    sink.write(event("step", iteration=4001, trained_tokens=100, **STEP))
    sink.write(event("evaluation", trained_tokens=100, log_perplexity=2.7, seconds=30.0))
    sink.write(event("message", "the disk is full"))
    sink.write(event("restart", 2))
    sink.close()
    at = {"_timestamp": 1_700_000_000.0}
    assert wandb.told == [
        ("metric", "*", "trained_tokens"),
        ("metric", "validation/*", "evaluated_tokens"),
        (4001, {"train/loss": 2.75, "train/grad_norm": 0.25, "train/skipped": False, "trained_tokens": 100, **at}),
        (4001, {"validation/log_perplexity": 2.7, "validation/seconds": 30.0, "evaluated_tokens": 100, **at}),
        (4001, {"restarts": 2, **at}),
        ("finish",),
    ]
    assert wandb.summary == {"last_message": "message: the disk is full"}


def test_a_restart_resumes_the_curve(wandb: StandIn, tmp_path: Path) -> None:
    for _ in range(2):
        WeightsAndBiases(tmp_path, "online").write(event("step", iteration=4001, trained_tokens=100, **STEP))
    first, second = wandb.runs
    assert (first["id"], first["resume"], first["project"]) == (second["id"], "allow", "tiny")
    assert first["mode"] == "online"


def test_what_cannot_be_opened_is_an_error_and_tried_again(wandb: StandIn, tmp_path: Path) -> None:
    sink = WeightsAndBiases(tmp_path, "online")
    wandb.refuses = True
    with pytest.raises(ConnectionError, match="api_key not configured"):
        sink.write(event("step", iteration=4001, trained_tokens=100, **STEP))
    wandb.refuses = False
    sink.write(event("step", iteration=4002, trained_tokens=200, **STEP))
    assert [told[0] for told in wandb.told] == ["metric", "metric", 4002]


def test_wandb_that_is_not_installed_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match="--wandb needs wandb: pip install wandb"):
        WeightsAndBiases(tmp_path, "offline")
