"""What the files beside a checkpoint tell: its run's steps, and the heads from --heads, manifest, run or width."""

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoint_convert.formats.step_files import attention_heads, run_steps
from stage.errors import InputError
from stage.outputs.manifest import Recipe, Source, made_by, write_manifest


def write_record(output: Path, options: dict[str, Any], inputs: list[Source]) -> None:
    write_manifest(output, made_by(Recipe("x", options, inputs), [], wall_s=1.0))


def test_heads_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = Path("ckpt")
    write_record(Path("paxml"), {"heads": 12}, [])
    write_record(checkpoint, {}, [Source("paxml", 1, 1, "md5:0")])  # whose name here may be another checkpoint's
    with pytest.raises(InputError, match=r"pass --heads \(hidden size 36\)"):
        attention_heads(checkpoint, 36, None)
    assert attention_heads(checkpoint, 12288, None) == 96  # the benchmark's model
    for heads in (5, 0, -4):
        with pytest.raises(InputError, match=f"--heads {heads}: does not divide the hidden size 36"):
            attention_heads(checkpoint, 36, heads)
    write_record(checkpoint, {"heads": 4}, [])
    assert attention_heads(checkpoint, 36, None) == attention_heads(checkpoint, 36, 4) == 4
    with pytest.raises(InputError, match=r"--heads 6: .* was made by a model of 4 heads; leave --heads out"):
        attention_heads(checkpoint, 36, 6)
    write_record(checkpoint, {"heads": "four"}, [])
    with pytest.raises(InputError, match=r"ckpt\.manifest\.json: 'four' heads, expected a number"):
        attention_heads(checkpoint, 36, None)


def test_heads_and_steps_of_a_run(trained: Path, tmp_path: Path) -> None:
    assert attention_heads(trained, 36, None) == 4
    assert run_steps(trained) == (3005, 4004)
    step = tmp_path / "run" / "checkpoints" / "step_00000001"
    step.mkdir(parents=True)
    assert (run_steps(step), run_steps(tmp_path)) == ((None, None), (None, None))
    progress = json.loads((trained / "progress.json").read_text())
    for damage, complaint in (({"steps": "5"}, "got `str`"), ({"global_batch_size": 0}, "a batch of 0")):
        (step / "progress.json").write_text(json.dumps({**progress, **damage}))
        with pytest.raises(InputError, match=complaint):
            run_steps(step)
    (step / "progress.json").write_text(json.dumps(progress))
    assert run_steps(step) == (3005, None)
    (tmp_path / "run" / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"config\.json: .*missing required field.*not a run's configuration"):
        run_steps(step)
