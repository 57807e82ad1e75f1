"""Whole runs of the tiny benchmark: topologies, interruption and continuation, bad input."""

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import benchmark.training.step as step_module
import benchmark.training.train as train_module
from benchmark.config.run_config import RunConfig
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path
from benchmark.training.engine.adam import Adam
from benchmark.training.engine.distributed import read_environment
from benchmark.training.evaluate_checkpoint import evaluate_checkpoint
from benchmark.training.inputs import require_inputs
from benchmark.training.train import train
from checkpoint_convert.export.to_dcp import to_dcp
from stage.errors import InputError
from tests.benchmark.runs import events, figures, mlperf, run, system_of
from tests.benchmark.tiny import TINY, Inputs, in_processes
from tests.support import assert_refused, command


def test_training_learns_and_counts_from_the_checkpoint(inputs: Inputs, tmp_path: Path) -> None:
    losses, _, evaluations = run(inputs, tmp_path / "run")
    assert len(losses) == 12
    assert len(evaluations) == 3
    assert evaluations[0] > evaluations[1] > evaluations[2]
    first = events(tmp_path / "run", "step")[0]
    assert (first["iteration"], first["consumed_samples"]) == (4001, 48012)
    assert first["trained_tokens"] == 12 * 16
    assert [event["trained_tokens"] for event in events(tmp_path / "run", "evaluation")] == [768, 1536, 2304]


def test_repeated_runs_are_equal_to_the_bit(inputs: Inputs, tmp_path: Path) -> None:
    first = run(inputs, tmp_path / "a", system_of(2), precision="bf16")
    assert run(inputs, tmp_path / "b", system_of(2), precision="bf16") == first
    assert run(inputs, tmp_path / "c", system_of(2), precision="bf16", seed=18) != first


def _train_and_ask_to_stop(config: RunConfig, after: int) -> str:
    """Send this process SIGTERM in its step number ``after`` (on rank 1 only)."""
    step, count = step_module.train_step, 0

    def counted(*arguments: Any, **keywords: Any) -> Any:
        nonlocal count
        count += 1
        if count == after and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)
        return step(*arguments, **keywords)

    setattr(train_module, "train_step", counted)  # noqa: B010
    return train(config)


@pytest.mark.parametrize("continued_on", [2, 1, 3])
def test_interrupted_run_continues_where_it_was(continued_on: int, inputs: Inputs, tmp_path: Path) -> None:
    whole = run(inputs, tmp_path / "whole", system_of(2), precision="bf16")
    config = inputs.config(tmp_path / "run", system=system_of(2), precision="bf16", save_interval=5)
    assert in_processes(2, _train_and_ask_to_stop, config, 7) == ["interrupted"] * 2
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == [
        "step_00000005",
        "step_00000008",  # the request is agreed on in the step that follows it
    ]
    assert mlperf(tmp_path / "run")[-4]["metadata"]["status"] == "aborted"
    system = system_of(continued_on)
    again = dataclasses.replace(
        config, system=inputs.config(tmp_path, system=system).system, seed=None, checkpoint=None
    )
    assert in_processes(continued_on, train, again) == ["completed"] * continued_on
    found = figures(tmp_path / "run")
    assert [len(part) for part in found] == [len(part) for part in whole]
    if continued_on == 2:
        assert found == whole
    else:
        for part, expected in zip(found, whole, strict=True):
            assert part == pytest.approx(expected, rel=5e-3)
    log = mlperf(tmp_path / "run")
    keys = [event["key"] for event in log]
    for key in ("init_start", "init_stop", "run_start", "run_stop", "restart", "seed"):
        assert keys.count(key) == 1, key
    evaluations = [event["metadata"]["epoch_num"] for event in log if event["key"] == "eval_accuracy"]
    assert evaluations == [768, 1536, 2304]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["restarts"], summary["seed"], summary["trained_tokens"]) == (1, 17, 2304)


def test_killed_before_the_first_checkpoint_starts_again_with_its_seed(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", seed=None)
    tmp_path.joinpath("run").mkdir()
    begun = {"seed": 99, "benchmark": {}, "precision": "", "train_data_path": [], "valid_data_path": []}
    (tmp_path / "run" / "config.json").write_text(json.dumps(begun))
    (tmp_path / "run" / "result_0.txt").write_text("half a li")
    assert in_processes(1, train, config) == ["completed"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["seed"] == 99
    assert mlperf(tmp_path / "run")[0]["key"] == "cache_clear"


def test_seeds_are_drawn_anew(inputs: Inputs, tmp_path: Path) -> None:
    for name in ("a", "b"):
        in_processes(1, train, inputs.config(tmp_path / name, seed=None, save_interval=0))
    seeds = [json.loads((tmp_path / name / "summary.json").read_text())["seed"] for name in ("a", "b")]
    assert seeds[0] != seeds[1]


def _train_with_bad_gradients(config: RunConfig, bad_steps: list[int]) -> str:
    square_sum, count = Adam.gradient_square_sum, 0

    def damaged(adam: Adam) -> Any:
        nonlocal count
        count += 1
        if count in bad_steps and os.environ["RANK"] == "0":
            adam._gradients()[0][0, 0] = float("inf")
        return square_sum(adam)

    setattr(Adam, "gradient_square_sum", damaged)  # noqa: B010
    return train(config)


def test_step_without_finite_gradients_is_skipped(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", system=system_of(2), precision="bf16")
    assert in_processes(2, _train_with_bad_gradients, config, [3]) == ["completed"] * 2
    steps = events(tmp_path / "run", "step")
    assert [step["skipped"] for step in steps] == [False, False, True] + [False] * 9
    assert steps[2]["consumed_samples"] == 48036  # its samples are consumed ...
    assert steps[3]["learning_rate"] == steps[2]["learning_rate"] < steps[1]["learning_rate"]  # ... but not scheduled


def test_run_gives_up_when_no_gradient_is_finite(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", system=system_of(2))
    assert in_processes(2, _train_with_bad_gradients, config, list(range(1, 13))) == ["diverged"] * 2
    stops = [event["metadata"]["status"] for event in mlperf(tmp_path / "run") if event["key"] == "run_stop"]
    assert stops == ["aborted"]


def _fail(config: RunConfig) -> str:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    setattr(train_module, "train_step", broken)  # noqa: B010
    return train(config)


def test_run_that_an_exception_ends_has_its_run_stop(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError: a bug"):
        in_processes(1, _fail, inputs.config(tmp_path / "run"))
    log = mlperf(tmp_path / "run")
    assert [event["metadata"]["status"] for event in log if event["key"] == "run_stop"] == ["aborted"]
    assert not (tmp_path / "run" / "summary.json").exists()


def test_evaluate_gives_the_same_value_for_a_runs_checkpoint(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", save_interval=4)
    in_processes(1, train, config)
    evaluations = [event["log_perplexity"] for event in events(tmp_path / "run", "evaluation")]
    for steps, expected in zip((8, 12), evaluations[1:], strict=True):
        own = dataclasses.replace(config, checkpoint=checkpoint_path(config.run_dir, steps))
        (quality,) = in_processes(1, evaluate_checkpoint, own)
        assert quality.log_perplexity == pytest.approx(expected, rel=1e-6)
        assert quality.expected is None
    initial = dataclasses.replace(config, benchmark=dataclasses.replace(TINY, initial_log_perplexity=(4.8, 0.1)))
    (quality,) = in_processes(1, evaluate_checkpoint, initial)
    assert quality.distance_in_sd == pytest.approx((quality.log_perplexity - 4.8) / 0.1)
    assert abs(quality.distance_in_sd) < 5
    to_dcp(inputs.checkpoint, tmp_path / "dcp")
    (exported,) = in_processes(1, evaluate_checkpoint, dataclasses.replace(initial, checkpoint=tmp_path / "dcp"))
    assert exported.log_perplexity == quality.log_perplexity


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"train_data_path": ()}, "--train-data-path is missing"),
        ({"valid_data_path": ("none",)}, "none.bin: no such file"),
        ({"checkpoint": None}, "--checkpoint is missing"),
        ({"checkpoint": Path("/none")}, "/none: no such folder"),
    ],
)
def test_missing_inputs_are_named(change: dict[str, Any], complaint: str, inputs: Inputs, tmp_path: Path) -> None:
    config = dataclasses.replace(inputs.config(tmp_path), **change)
    with pytest.raises(InputError, match=complaint):
        require_inputs(config)


def test_data_of_another_tokenizer_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    model = dataclasses.replace(TINY.model, vocab_size=90)
    config = inputs.config(tmp_path, benchmark=dataclasses.replace(TINY, model=model))
    with pytest.raises(InputError, match="tokenised with a vocabulary of 100 pieces, but the model has 90"):
        require_inputs(config)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--num-layers", "3"], "the checkpoint belongs to another model"),
        (["--hidden-size", "80"], "the checkpoint belongs to another model"),
        (["--padded-vocab-size", "256"], "the checkpoint belongs to another model"),
        (["--start-iterations", "3000"], "trained for 4000 steps, but the run starts at 3000"),
        (
            ["--global-batch-size", "15"],
            "global_batch_size 15 is not a multiple of micro_batch_size 2 x 1 data-parallel devices",
        ),
        (["--devices-per-node", "2"], "2 = 2 devices, but 1 processes were started"),
        (["--device", "cuda"], "CUDA devices per machine; PyTorch sees 0"),
        (["--run-dir", "/proc/none"], "/proc/none"),
        (["--seed", "-1"], "seed -1: expected 0 to"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_bad_runs_are_refused_in_one_line(change: list[str], complaint: str, inputs: Inputs, tmp_path: Path) -> None:
    model = TINY.model
    options = {
        "--num-layers": model.num_layers,
        "--hidden-size": model.hidden_size,
        "--num-attention-heads": model.num_attention_heads,
        "--seq-length": model.seq_length,
        "--vocab-size": model.vocab_size,
        "--padded-vocab-size": model.padded_vocab_size,
        "--max-position-embeddings": model.max_position_embeddings,
        "--global-batch-size": 12,
        "--start-global-batch-size": 12,
        "--train-samples": 48024,
        "--micro-batch-size": 2,
        "--checkpoint": inputs.checkpoint,
        "--run-dir": tmp_path / "run",
    }
    options.update([change] if len(change) == 2 else [])  # type: ignore[list-item]
    words: list[object] = [word for pair in options.items() for word in pair]
    words += ["--train-data-path", *inputs.training, "--valid-data-path", *inputs.validation]
    done = command(
        "benchmark", "train", "rehearsal", "--system", "cpu_p1", *words, *(change if len(change) == 1 else [])
    )
    assert_refused(done, complaint)
    assert not (tmp_path / "run" / "summary.json").exists()


def test_finished_run_is_never_overwritten(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run")
    run(inputs, tmp_path / "run")
    with pytest.raises(RuntimeError, match="holds a finished run"):
        in_processes(1, train, config)


def test_continuing_with_other_options_is_refused(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", system=system_of(2), save_interval=5)
    in_processes(2, _train_and_ask_to_stop, config, 5)
    slower = dataclasses.replace(TINY, optimizer=dataclasses.replace(TINY.optimizer, lr=5e-4, min_lr=5e-5))
    for changed, complaint in (
        (dataclasses.replace(config, benchmark=slower), "the run began with benchmark"),
        (dataclasses.replace(config, precision="bf16"), "the run began with precision fp32, now it is bf16"),
        (dataclasses.replace(config, seed=18), "the run began with seed 17"),
    ):
        with pytest.raises(RuntimeError, match=complaint):
            in_processes(2, train, changed)


def test_busy_port_is_one_line(inputs: Inputs, tmp_path: Path) -> None:
    import socket

    with socket.socket() as busy:
        busy.bind(("", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"localhost:{port} is in use; set MASTER_PORT"):
            in_processes(1, _train_on_port, inputs.config(tmp_path / "run", system=system_of(2)), port)


def _train_on_port(config: RunConfig, port: int) -> str:
    os.environ.update(WORLD_SIZE="2", MASTER_PORT=str(port))
    return train(config)


def test_damaged_environment_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for changes, complaint in (
        ({"RANK": "2", "WORLD_SIZE": "2"}, "expected 0 <= RANK < WORLD_SIZE"),
        ({"RANK": "first"}, "invalid literal"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "needs MASTER_ADDR and MASTER_PORT"),
    ):
        with monkeypatch.context() as patch:
            for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                patch.delenv(name, raising=False)
            for name, value in changes.items():
                patch.setenv(name, value)
            with pytest.raises(InputError, match=complaint):
                read_environment()
