"""Inputs of the drills."""

from pathlib import Path

import pytest

from benchmark.drills import practice
from benchmark.drills.practice import EVAL_INTERVAL, LAYOUTS, PRACTICE, STEPS, practice_config, prepared_inputs
from benchmark.training.inputs import require_inputs
from checksums.md5_list import digest_folder
from model.gpt3_config import GPT3Config

SMALL = GPT3Config(
    num_layers=2,
    hidden_size=16,
    num_attention_heads=2,
    seq_length=64,
    vocab_size=250,
    padded_vocab_size=256,
    max_position_embeddings=64,
)


@pytest.mark.slow
def test_made_once_with_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(practice, "MODEL", SMALL)
    inputs = prepared_inputs(tmp_path / "a")
    digests = digest_folder(inputs.folder)
    made = inputs.checkpoint.stat().st_mtime_ns
    assert prepared_inputs(tmp_path / "a").checkpoint.stat().st_mtime_ns == made
    again = digest_folder(prepared_inputs(tmp_path / "b").folder)
    same = {name for name in digests if "manifest" not in name and not name.endswith("common.pt")}
    assert {name: digests[name] for name in same} == {name: again[name] for name in same}
    config = practice_config(inputs, tmp_path / "run", LAYOUTS["2 processes"])
    require_inputs(config.data, config.benchmark.model.vocab_size, checkpoint=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_runs_fit_their_layouts(layout: str, tmp_path: Path) -> None:
    config = practice_config(practice.PracticeInputs(tmp_path), tmp_path, LAYOUTS[layout])
    config.require_fit()
    assert PRACTICE.last_iteration - PRACTICE.start_iteration == STEPS
    assert PRACTICE.eval_interval == EVAL_INTERVAL
