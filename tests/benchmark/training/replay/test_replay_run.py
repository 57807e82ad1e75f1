"""Replays: an honest run holds to the bit, and whatever was exchanged or made up is told with its link."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import benchmark.training.replay.replay_run as replay_module
from benchmark.__main__ import main
from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.systems import SYSTEMS
from benchmark.run_record.evidence_chain import (
    AnyRecord,
    BeginRecord,
    Chain,
    CheckpointRecord,
    EvaluationRecord,
    read_chain,
)
from benchmark.run_record.file_names import EVIDENCE_FILE
from benchmark.training.replay.replay_run import ReplayOptions, ReplayResult, replay
from benchmark.training.replay.replayed_run import replay_on_ranks, require_room
from benchmark.training.train import train
from foundation.errors import InputError
from tests.benchmark.run_record.records import Edit, at_step, forge
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes

Said = Callable[[], list[str]]


def replayed_here(run_dir: Path, steps: str = "2:6", **options: Any) -> ReplayResult:
    result = replay(ReplayOptions(run_dir, steps, **options))
    assert result is not None
    return result


def texts(result: ReplayResult) -> list[str]:
    return [fault.text() for fault in result.deviations]


@pytest.fixture(scope="module")
def replayed(honest_run: Path) -> Chain:
    """The chain of steps 3 to 6 trained again, once for all tests whose checkpoint and data are sound."""
    chains: list[Chain] = []

    def keeping(*arguments: Any) -> Chain | None:
        chain = replay_on_ranks(*arguments)
        assert chain is not None
        chains.append(chain)
        return chain

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module, "replay_on_ranks", keeping)
        result = replayed_here(honest_run)
    assert result.text() == (
        f"{honest_run}: steps 2 to 6: 4 steps trained again from the checkpoint after 2 steps and compared to the bit: "
        "every link holds"
    )
    return chains[0]


@pytest.fixture
def said(run_dir: Path, replayed: Chain, monkeypatch: pytest.MonkeyPatch) -> Said:
    """What a replay of the damaged run says."""
    monkeypatch.setattr(replay_module, "replay_on_ranks", lambda *_: replayed)
    assert texts(replayed_here(run_dir)) == []
    return lambda: texts(replayed_here(run_dir))


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "start", "compared"), [("0:2", 0, 2), ("6:6", 6, 0)])
def test_beginning_middle_and_end(steps: str, start: int, compared: int, honest_run: Path) -> None:
    result = replayed_here(honest_run, steps)
    assert (texts(result), result.start, result.compared_steps) == ([], start, compared)
    assert (result.why_not_exact, result.notes) == (None, [])


def slower(record: AnyRecord) -> AnyRecord:
    return msgspec.structs.replace(record, learning_rate=1e-5) if hasattr(record, "learning_rate") else record


def better(record: AnyRecord) -> AnyRecord:
    return msgspec.structs.replace(record, log_perplexity=2.0) if isinstance(record, EvaluationRecord) else record


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (at_step(4, loss=4.0), "line 7, step 4: loss: recorded 4.0, found 4.79"),
        (at_step(4, grad_norm=None), "line 7, step 4: grad norm: recorded None, found 1.17"),
        (at_step(4, first_sample=0), "line 7, step 4: first sample: recorded 0, found 48036"),
        (at_step(4, weights="0" * 16), "line 7, step 4: weights: recorded 0000000000000000, found "),
        (slower, "line 5, step 3: learning rate: recorded 1e-05, found "),
        (better, "line 6, step 3: log perplexity: recorded 2.0, found 4."),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_chain_that_was_made_anew_is_found_by_training_again(
    edit: Edit, told: str, run_dir: Path, said: Said
) -> None:
    """Every link's digest holds, and log and chain have each other's."""
    forge(run_dir, edit)
    _sign_checkpoints_anew(run_dir)
    assert any(line.startswith(told) for line in said()), said()


def _sign_checkpoints_anew(run_dir: Path) -> None:
    """Let the checkpoints know the digests of their records in the chain as it is."""
    for link in read_chain(run_dir / EVIDENCE_FILE).links:
        if isinstance(link.record, CheckpointRecord):
            folder = run_dir / "checkpoints" / f"step_{link.record.step:08d}"
            progress = json.loads((folder / "progress.json").read_text())
            _replace_progress(folder, json.dumps(progress | {"evidence_head": link.digest}))


def _replace_progress(folder: Path, text: str) -> None:
    old_content, new_content = (folder / "progress.json").read_bytes(), text.encode()
    (folder / "progress.json").write_bytes(new_content)
    old, new = (hashlib.md5(content, usedforsecurity=False).hexdigest() for content in (old_content, new_content))
    (folder / "digests.md5").write_text((folder / "digests.md5").read_text().replace(old, new))


@pytest.mark.usefixtures("said")
def test_the_command_and_an_edited_log(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses: list[int] = []
    monkeypatch.setattr("benchmark.training.engine.distributed.end_process", statuses.append)
    words = ["replay", str(run_dir), "--steps", "2:6"]
    main([*words, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert (result["holds"], result["exact"], result["start"], result["compared_steps"]) == (True, True, 2, 4)
    log = run_dir / "result_0.txt"
    log.write_text(log.read_text().replace('"key": "seed", "value": 17', '"key": "seed", "value": 16'))
    main(words)
    assert "line 13, step 6: SHA-256 of result_0.txt, the MLPerf log: recorded " in capsys.readouterr().out
    assert statuses == [0, 1]
    with pytest.raises(InputError, match="a run writes it with train --evidence"):
        main(["replay", str(run_dir / "checkpoints"), "--steps", "1:2"])


@pytest.mark.slow
def test_an_exchanged_input_or_checkpoint_is_named(run_dir: Path, inputs: Inputs, tmp_path: Path) -> None:
    """Another dataset; a checkpoint of other steps; another run's; another run's weights with our progress.json."""
    result = replayed_here(run_dir, "4:6", train_data_path=inputs.training[1:2])
    assert result.start is None
    assert texts(result)[0].startswith("line 1: ")
    assert any("of the input train 1" in line for line in texts(result))
    folder = run_dir / "checkpoints"
    progress = (folder / "step_00000004" / "progress.json").read_text()
    shutil.copytree(folder / "step_00000004", folder / "step_00000005")
    result = replayed_here(run_dir, "5:6")
    assert (result.start, len(result.deviations)) == (None, 1)
    assert texts(result)[0].startswith("step 5: the checkpoint's progress.json: recorded seed 17, 5 steps")
    config = inputs.config(tmp_path / "other", SHORT, seed=18, save_interval=2, keep_checkpoints=3, evidence=True)
    assert in_processes(1, train, config) == ["success"]
    for name in ("step_00000005", "step_00000004"):
        shutil.rmtree(folder / name)
    shutil.copytree(tmp_path / "other/checkpoints/step_00000004", folder / "step_00000004")
    result = replayed_here(run_dir, "4:5")
    assert texts(result)[0].startswith("step 4: the checkpoint's progress.json: recorded seed 17, 4 steps")
    _replace_progress(folder / "step_00000004", progress)
    lines = texts(replayed_here(run_dir, "4:5"))
    assert lines[0].startswith("line 8, step 4: weights of the checkpoint: recorded ")
    assert lines[1].startswith("line 8, step 4: moments of the checkpoint: recorded ")
    assert any(line.startswith("line 9, step 5: loss") for line in lines)


@pytest.mark.slow
def test_another_layout_is_compared_with_tolerances(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = dataclasses.replace(system_of(2), micro_batch_size=2)
    monkeypatch.setitem(SYSTEMS, "two", two)
    result = replayed_here(run_dir, "4:6", system="two")
    assert (texts(result), result.why_not_exact) == ([], "devices_per_node was 1, is 2")
    assert "with tolerances (devices_per_node was 1, is 2): every link holds" in result.text()
    forge(run_dir, at_step(5, loss=4.0))
    _sign_checkpoints_anew(run_dir)
    assert [line[:18] for line in texts(replayed_here(run_dir, "4:6", system="two"))] == ["line 9, step 5: lo"]


@pytest.mark.parametrize(
    ("steps", "change", "told"),
    [
        ("6:4", {}, "expected FIRST:LAST, such as 176:192; change --steps"),
        ("2:7", {}, "its evidence has steps 1 to 6, not 7; change --steps"),
        ("2:4", {"system": "dgxh100_n64"}, "pipeline_parallel 8 x pipeline_chunks 6 are more"),
        ("2:4", {"log": Path("none.txt")}, "none.txt: no MLPerf log, or several; give the run's with --log"),
        ("2:4", {"train_data_path": ("none",)}, "none"),
    ],
)
def test_bad_input(steps: str, change: dict[str, Any], told: str, honest_run: Path) -> None:
    with pytest.raises(InputError, match=told):
        replayed_here(honest_run, steps, **change)


@pytest.mark.parametrize(
    ("system", "told"),
    [("dgxh100_n64", "the layout takes 64 x 8 devices; PyTorch sees 0 GPUs here: start replay on"), ("cpu_p1", "GB")],
)
def test_machines_that_are_too_small(system: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        require_room(GPT3_175B.model, SYSTEMS[system])


@pytest.mark.parametrize(
    "change",
    [
        {"seed": None},
        {"precision": "int8"},
        {"system": {"device": "abacus"}},
        {"train_data_path": "none"},
        {"benchmark": {"model": {"num_layers": 10**30}}},
    ],
    ids=str,
)
def test_a_stranger_s_configuration(change: dict[str, Any], run_dir: Path) -> None:
    def edit(record: AnyRecord) -> AnyRecord:
        if not isinstance(record, BeginRecord):
            return record
        merged = {
            name: {**record.config[name], **value} if isinstance(value, dict) and value else value
            for name, value in change.items()
        }
        return msgspec.structs.replace(record, config={**record.config, **merged})

    forge(run_dir, edit)
    with pytest.raises(InputError):
        replayed_here(run_dir)
