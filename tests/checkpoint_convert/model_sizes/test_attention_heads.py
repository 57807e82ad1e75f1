"""Attention heads: from --heads, a manifest, a run's configuration or the benchmark's width, where these agree."""

import shutil
from pathlib import Path

import pytest

from checkpoint_convert.export.to_huggingface import to_huggingface
from checkpoint_convert.model_sizes.attention_heads import attention_heads
from stage.errors import InputError
from tests.support import assert_refused, command


def test_heads_are_asked_for_where_nothing_tells_them(megatron: dict[str, Path], tmp_path: Path) -> None:
    source = shutil.copytree(megatron["fp32"], tmp_path / "source")
    words = ["checkpoint_convert", "to-huggingface", "--input", source, "--output", tmp_path / "out"]
    assert_refused(command(*words), "pass --heads (hidden size 36)")
    for heads in (5, 0, -4):
        with pytest.raises(InputError, match=f"--heads {heads}: does not divide the hidden size 36"):
            to_huggingface(source, tmp_path / "out", heads=heads)
    assert not (tmp_path / "out").exists()
    to_huggingface(source, tmp_path / "out", heads=4)
    to_huggingface(megatron["fp32"], tmp_path / "known", heads=None)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "known")]
    assert files[0] == files[1]


def test_the_benchmarks_heads_need_no_records(tmp_path: Path) -> None:
    assert attention_heads(tmp_path / "ckpt4000_bf16", 12288, None) == 96


def test_heads_of_a_runs_configuration(tmp_path: Path) -> None:
    step = tmp_path / "run" / "checkpoints" / "step_00000001"
    step.mkdir(parents=True)
    config = tmp_path / "run" / "config.json"
    config.write_text('{"benchmark": {"model": {"num_attention_heads": 4}}}')
    assert attention_heads(step, 36, None) == attention_heads(step, 36, 4) == 4
    with pytest.raises(InputError, match=r"--heads 6: .* was made by a model of 4 heads; leave --heads out"):
        attention_heads(step, 36, 6)
    config.write_text("{}")
    with pytest.raises(InputError, match=r"config\.json: not a run's configuration"):
        attention_heads(step, 36, None)


@pytest.mark.slow
def test_heads_that_contradict_the_records_are_refused(
    megatron: dict[str, Path], trained: Path, tmp_path: Path
) -> None:
    for source in (megatron["bf16"], trained):
        with pytest.raises(InputError, match=r"--heads 8: .* was made by a model of 4 heads"):
            to_huggingface(source, tmp_path / "out", heads=8)
