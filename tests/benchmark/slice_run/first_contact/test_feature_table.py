import json
import os
import pickle
from pathlib import Path

import pytest
import torch

from benchmark.slice_run.first_contact import feature_table
from benchmark.slice_run.first_contact.feature_table import FEATURES, DeviceFeature, try_feature
from benchmark.slice_run.first_contact.kernel_features import FeatureWrong


def wrong(device: torch.device) -> str:
    raise FeatureWrong("sums: relative error 1, where at most 1e-05 is due")


def crashes(device: torch.device) -> str:
    print("a library says why", flush=True)
    os.abort()


def hangs(device: torch.device) -> str:
    import time

    while True:
        time.sleep(1)


def test_names_are_their_own_and_what_a_run_needs_is_named() -> None:
    assert len({one.name for one in FEATURES}) == len(FEATURES)
    assert all(pickle.loads(pickle.dumps(one)) for one in FEATURES)  # for a process of its own
    needed = {one.name for one in FEATURES if not one.without}
    assert {"products", "weight gradients", "adam", "messages", "training in BF16"} <= needed
    assert "cudnn attention" not in needed


@pytest.mark.slow
def test_each_feature_has_a_process_of_its_own(tmp_path: Path) -> None:
    works = next(one for one in FEATURES if one.name == "context")
    found = try_feature(works, "cpu", tmp_path)
    assert (found.outcome, found.found, found.without) == ("ok", "a CPU", "")
    broken = try_feature(DeviceFeature("broken", "a test", wrong, "nothing"), "cpu", tmp_path)
    assert (broken.outcome, broken.without) == ("failed", "nothing")
    assert broken.found.startswith("FeatureWrong: sums: relative error 1")
    crashed = try_feature(DeviceFeature("crashed", "a test", crashes), "cpu", tmp_path)
    assert crashed.found == "the process ended with status -6: a library says why"
    assert json.loads((tmp_path / "broken.json").read_text())[0] == "failed"


@pytest.mark.slow
def test_a_feature_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(feature_table, "PATIENCE_S", 0.1)
    found = try_feature(DeviceFeature("hangs", "a test", hangs), "cpu", tmp_path)
    assert (found.outcome, found.found) == ("failed", "no answer within 0 s")


def test_what_a_cpu_has_not_is_skipped(tmp_path: Path) -> None:
    found = try_feature(DeviceFeature("streams", "a test", wrong, on_cpu=False), "cpu", tmp_path)
    assert (found.outcome, found.seconds) == ("skipped", 0.0)
