"""Replays: an honest run holds to the bit, and whatever is falsified in another is found."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import benchmark.replay.replay_run as replay_module
from benchmark.evidence.chain_links import EVIDENCE
from benchmark.evidence.link_contents import BeginLink, CheckpointLink, Content, EvaluationLink, StepLink
from benchmark.evidence.tensor_prints import PRINT, as_text, from_text
from benchmark.replay.recorded_config import Replacements
from benchmark.replay.replay_ranks import replay_on_ranks
from benchmark.replay.replay_result import ReplayResult
from benchmark.replay.replay_run import ReplayOptions, replay
from benchmark.replay.replayed_steps import ReplayedSteps
from benchmark.training.train import train
from tests.benchmark.replay.forged import at_step, edit_log, forge, of_key
from tests.benchmark.tiny import SHORT, Inputs, in_processes

Said = Callable[[], list[str]]
Change = Callable[[dict[str, Any]], dict[str, Any] | None]
ALL = ReplayOptions(Path(), "2:6", Replacements())


def replay_here(options: ReplayOptions) -> ReplayResult:
    found = replay(options)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def replayed(honest_run: Path) -> ReplayedSteps:
    """What training steps 3 to 6 again gives, once for all tests whose checkpoint and data are sound."""
    kept: list[ReplayedSteps] = []

    def keeping(*arguments: Any) -> ReplayedSteps | None:
        found = replay_on_ranks(*arguments)
        assert found is not None
        kept.append(found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module, "replay_on_ranks", keeping)
        result = replay_here(dataclasses.replace(ALL, run_dir=honest_run))
    assert result.deviations == ()
    assert (result.start, result.compared_steps, result.exact) == (2, 4, True)
    return kept[0]


@pytest.fixture
def lines(run_dir: Path, replayed: ReplayedSteps, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What a replay of the damaged run says."""
    monkeypatch.setattr(replay_module, "replay_on_ranks", lambda *_: replayed)

    def said() -> list[str]:
        return [one.line() for one in replay_here(dataclasses.replace(ALL, run_dir=run_dir)).deviations]

    return said


def scaled(factor: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda record: {**record, "value": record["value"] * factor}


def later(milliseconds: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda record: {**record, "time_ms": record["time_ms"] + milliseconds}


@pytest.mark.parametrize(
    ("key", "change", "told"),
    [
        ("eval_accuracy", scaled(0.9), "step 3: log perplexity in the log: recorded 4.3"),
        ("eval_accuracy", later(-5000), "step 3: time of the evaluation in the log"),
        ("eval_accuracy", lambda record: None, "step 3: evaluation in the log: recorded none"),
        ("run_start", later(60_000), "step 1: run_start in the log"),
        ("run_stop", later(-60_000), "step 6: run_stop in the log"),
        ("block_start", later(60_000), "step 1: time of its block in the log"),
        ("seed", lambda record: {**record, "value": 18}, "seed in the log: recorded 18, found 17 in the chain"),
        ("opt_base_learning_rate", scaled(2), "opt_base_learning_rate in the log: recorded 0.002"),
        ("global_batch_size", scaled(2), "global_batch_size in the log: recorded 24, found 12"),
        ("evidence", lambda record: {**record, "value": "0" * 64}, "evidence in the log: recorded '000"),
        ("evidence", lambda record: None, "evidence in the log: recorded nothing"),
        (
            "tracked_stats",
            lambda record: {**record, "value": {**record["value"], "reduced_train_loss": 1.0}},
            "step 3: loss in the log: recorded 1.0",
        ),
        (
            "run_stop",
            lambda record: {**record, "metadata": {"status": "success"}},
            "status in the log: recorded ['success'], found completed in the chain",
        ),
    ],
)
def test_a_falsified_log_does_not_fit_its_chain(
    key: str,
    change: Callable[[dict[str, Any]], dict[str, Any] | None],
    told: str,
    run_dir: Path,
    lines: Said,
) -> None:
    edit_log(run_dir, of_key(key, change))
    said = lines()
    assert any(line.startswith(told) for line in said), said
    assert any(line.startswith("SHA-256 of the log") for line in said)


def other_tensor(text: str) -> str:
    """Another fingerprint of the third tensor."""
    prints = from_text(text, PRINT, len(text) * 3 // 4 // 8, "it").copy()
    prints[2] ^= np.uint64(1)
    return as_text(prints, PRINT)


def slower_schedule(content: Content) -> Content:
    if isinstance(content, StepLink):
        return dataclasses.replace(content, learning_rate=content.learning_rate * 0.5)
    return content


def moved(content: Content) -> Content:
    """Steps read other samples than are due."""
    return (
        dataclasses.replace(content, first_sample=content.first_sample + 12)
        if isinstance(content, StepLink)
        else content
    )


def without_step_4(content: Content) -> Content | None:
    return None if isinstance(content, StepLink | CheckpointLink) and content.step == 4 else content


def without_evaluation(content: Content) -> Content | None:
    return None if isinstance(content, EvaluationLink) and content.step == 3 else content


def other_weights(content: Content) -> Content:
    if isinstance(content, StepLink) and content.step == 5:
        return dataclasses.replace(content, weights=other_tensor(content.weights))
    return content


def other_state(content: Content) -> Content:
    if isinstance(content, CheckpointLink) and content.step == 2:
        state = dataclasses.replace(content.state, exp_avg=other_tensor(content.state.exp_avg))
        return dataclasses.replace(content, state=state)
    return content


def other_seed(content: Content) -> Content:
    return dataclasses.replace(content, seed=18) if isinstance(content, BeginLink) else content


def better_evaluation(content: Content) -> Content:
    if isinstance(content, EvaluationLink):
        return dataclasses.replace(content, log_perplexity=content.log_perplexity * 0.9)
    return content


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (at_step(4, loss=4.0), "step 4: loss: recorded 4.0, found 4.79"),
        (at_step(4, grad_norm=1.0), "step 4: grad norm: recorded 1.0, found 1.17"),
        (at_step(4, tokens="0" * 16), "step 4: tokens: recorded 0000000000000000"),
        (at_step(4, samples="0" * 16), "step 4: samples: recorded 0000000000000000"),
        (at_step(4, skipped=True), "step 4: skipped: recorded True, found False"),
        (at_step(4, learning_rate=1e-5), "step 4: learning rate: recorded 1e-05"),
        (slower_schedule, "step 1: learning rate: recorded 0.00049"),
        (moved, "step 1: first sample: recorded 48012, found 48000 is due"),
        (
            other_weights,
            "step 5: weights of 1 of 52 tensors: recorded others, found encoder.layers.0.input_layer",
        ),
        (other_state, "step 2: exp_avg of the checkpoint: recorded encoder.layers.0.input_layernorm.weight"),
        (better_evaluation, "step 6: log perplexity: recorded 4.2"),
        (without_step_4, "step 5: number of the step: recorded 5, found 4 is due"),
        (without_evaluation, "step 3: evaluation: recorded none, found due every 3 steps"),
        (other_seed, "seed of config.json: recorded 17, found 18 in the chain"),
        (at_step(4, time_ms=1), "step 4: time: recorded 1 ms"),
        (at_step(5, weights="AAAA"), "step 5: weights of 52 of 52 tensors"),
        (at_step(5, projections="AAAA"), "step 5: projections: recorded others"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_chain_that_was_made_anew_is_found_by_replay(edit: Any, told: str, run_dir: Path, lines: Said) -> None:
    """Every link's digest holds, and log and chain have each other's: only training again, or the schedule, tells."""
    better = of_key("eval_accuracy", scaled(0.9)) if edit is better_evaluation else lambda record: record
    without = of_key("eval_accuracy", lambda r: None if r["metadata"]["epoch_num"] == 576 else r)
    forge(run_dir, edit, without if edit is without_evaluation else better)
    said = lines()
    assert not any("SHA-256" in line or "the chain:" in line for line in said)
    assert any(line.startswith(told) for line in said), said


def test_an_honest_run_holds(lines: Said) -> None:
    assert lines() == []


def test_forging_nothing_changes_nothing(run_dir: Path, lines: Said) -> None:
    forge(run_dir)
    assert lines() == []


def test_a_link_that_was_edited_is_named_by_its_line(run_dir: Path, lines: Said) -> None:
    text = (run_dir / EVIDENCE).read_text()
    (run_dir / EVIDENCE).write_text(text.replace('"status":"success"', '"status":"success"'))
    assert lines()[0].startswith("the chain: recorded 12 links that hold, found line 13: changed since it was written")


def test_times_that_were_falsified_everywhere_alike_are_not_found(run_dir: Path, lines: Said) -> None:
    """What docs/evidence.md says cannot be told: twice as fast, in every link and every line."""

    def faster(content: Content) -> Content:
        return dataclasses.replace(content, time_ms=10_000 + content.time_ms // 2)

    forge(run_dir, faster, lambda record: {**record, "time_ms": 10_000 + record["time_ms"] // 2})
    assert lines() == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda config: config["benchmark"]["optimizer"].update(lr=5e-4), "optimizer of config.json"),
        (lambda config: config.update(seed=18), "seed of config.json: recorded 18, found 17"),
        (lambda config: config["benchmark"].update(eval_interval_samples=72), "eval_interval_samples of config.json"),
    ],
)
def test_another_configuration_is_found(
    change: Callable[[dict[str, Any]], None], told: str, run_dir: Path, lines: Said
) -> None:
    config = json.loads((run_dir / "config.json").read_text())
    change(config)
    (run_dir / "config.json").write_text(json.dumps(config))
    said = lines()
    assert any(line.startswith(told) for line in said), said


@pytest.mark.slow
def test_another_run_s_checkpoint_is_found(run_dir: Path, inputs: Inputs, tmp_path: Path) -> None:
    """One that is whole, with digests of its own."""
    config = inputs.config(tmp_path / "other", SHORT, seed=18, save_interval=2, keep_checkpoints=3)
    assert in_processes(1, train, config) == ["success"]
    shutil.rmtree(run_dir / "checkpoints" / "step_00000004")
    shutil.copytree(tmp_path / "other/checkpoints/step_00000004", run_dir / "checkpoints" / "step_00000004")
    result = replay_here(ReplayOptions(run_dir, "4:5", Replacements()))
    said = [one.line() for one in result.deviations]
    assert said[0].startswith("seed of the checkpoint's progress.json: recorded 18, found 17")
    assert said[1].startswith("step 4: weights of the checkpoint: recorded embedding.word_embeddings.weight")
    assert any(line.startswith("step 5: loss") for line in said)


@pytest.mark.slow
def test_other_data_and_another_layout(run_dir: Path, inputs: Inputs) -> None:
    """One of the two training sets; two devices instead of one."""
    given = Replacements(train_data_path=inputs.training[1:2], layout={"devices_per_node": 2})
    options = ReplayOptions(run_dir, "4:6", given)
    result = replay_here(options)
    assert (result.exact, result.why_not_exact) == (False, "devices was 1, is 2")
    said = [one.line() for one in result.deviations]
    for what in ("samples", "tokens", "loss"):
        assert any(line.startswith(f"step 5: {what}") for line in said), said
    alone = replay_here(dataclasses.replace(options, without_training=True))
    assert [(one.step, one.what) for one in alone.deviations] == [
        (step, what) for step in (4, 5, 6) for what in ("samples", "tokens")
    ]
    honest = replay_here(dataclasses.replace(options, given=Replacements(layout={"devices_per_node": 2})))
    assert honest.deviations == ()
    assert 0 < honest.largest_distances["weights"] < 1e-4
