"""Scalars for TensorBoard."""

import sys
from pathlib import Path

import pytest

from benchmark.events.tensorboard import TensorBoard
from stage.errors import InputError
from tests.benchmark.events.recorder import event


def test_tensorboard_gets_what_steps_and_evaluations_say(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    sink = TensorBoard(tmp_path)
    sink.write(event("step", trained_tokens=4096, loss=2.5, grad_norm=0.25, learning_rate=2e-5, step_s=0.5))
    sink.write(event("evaluation", trained_tokens=4096, log_perplexity=2.69, seconds=1.0))
    sink.write(event("message", "not a number"))
    sink.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for tag in (b"train/loss", b"train/grad_norm", b"train/learning_rate", b"validation/log_perplexity"):
        assert content.count(tag) == 1, tag


def test_tensorboard_that_is_not_installed_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(InputError, match="--tensorboard needs tensorboardX: pip install tensorboardX"):
        TensorBoard(tmp_path)
