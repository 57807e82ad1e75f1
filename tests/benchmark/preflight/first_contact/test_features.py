"""Each feature is tried in a process of its own."""

import os
from pathlib import Path

import pytest
import torch

from benchmark.preflight.first_contact import features, kernel_features
from benchmark.preflight.first_contact.features import DeviceFeature, try_feature
from benchmark.preflight.first_contact.kernel_features import FeatureWrong


def wrong(device: torch.device) -> str:
    raise FeatureWrong("sums: relative error 1, where at most 1e-05 is due")


def crashes(device: torch.device) -> str:
    print("a library says why", flush=True)
    os.abort()


def hangs(device: torch.device) -> str:
    import time

    while True:
        time.sleep(1)


@pytest.mark.slow
def test_each_feature_has_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    works = try_feature(DeviceFeature("works", kernel_features.gelus), "cpu", tmp_path)
    assert (works.outcome, works.found.partition(":")[0], works.without) == ("ok", "errors", "")
    broken = try_feature(DeviceFeature("broken", wrong, "nothing"), "cpu", tmp_path)
    assert (broken.outcome, broken.without) == ("failed", "nothing")
    assert broken.found.startswith("FeatureWrong: sums: relative error 1")
    crashed = try_feature(DeviceFeature("crashed", crashes), "cpu", tmp_path)
    assert crashed.found == "the process ended with status -6: a library says why"
    monkeypatch.setattr(features, "PATIENCE_S", 0.1)
    late = try_feature(DeviceFeature("hangs", hangs), "cpu", tmp_path)
    assert (late.outcome, late.found) == ("failed", "no answer within 0 s")
    skipped = try_feature(DeviceFeature("streams", wrong, on_cpu=False), "cpu", tmp_path)
    assert (skipped.outcome, skipped.seconds) == ("skipped", 0.0)
