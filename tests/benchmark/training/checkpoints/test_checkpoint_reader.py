"""Reading a run's checkpoint: into any topology, and only what was written."""

import dataclasses
import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.run_config import RunConfig
from benchmark.run_record.checkpoint_list import whole_checkpoints
from benchmark.run_record.file_names import checkpoint_path
from benchmark.training.checkpoints import checkpoint_reader
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.checkpoints.checkpoint_writer import Checkpointer
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.train import train
from foundation.errors import InputError
from foundation.outputs.digest import md5_file
from tests.benchmark.runs import events, figures, loaded_state, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes
from tests.support import changed, command

ONE = system_of(1, micro_batch_size=2)
PIPELINE = system_of(2, pipeline_parallel=2, micro_batch_size=6)
TENSOR = system_of(2, tensor_parallel=2)


@pytest.fixture(scope="module")
def begun(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run of pipeline parallelism, as if killed after the checkpoint after 4 of its 6 steps."""
    folder = tmp_path_factory.mktemp("begun")
    config = inputs.config(folder / "run", SHORT, system=PIPELINE, save_interval=4)
    assert in_processes(2, train, config) == ["success"] * 2
    (config.run_dir / "summary.json").unlink()
    return config


def continue_from(begun: RunConfig, run_dir: Path, **fields: Any) -> RunConfig:
    shutil.copytree(begun.run_dir, run_dir)
    return changed(begun, run_dir=run_dir, checkpoint=None, **fields)


@pytest.mark.slow
@pytest.mark.parametrize("system", [PIPELINE, TENSOR, system_of(2, replicas=2)], ids=["pipeline", "tensor", "replicas"])
def test_any_topology_continues(system: Any, begun: RunConfig, inputs: Inputs, tmp_path: Path) -> None:
    fitted = inputs.config(tmp_path, system=system).system
    config = continue_from(begun, tmp_path / "run", system=fitted)
    assert in_processes(system.num_devices, train, config) == ["success"] * system.num_devices
    for found, whole in zip(figures(config.run_dir), figures(begun.run_dir), strict=True):
        again = found[len(whole) :]
        assert len(again) in (1, 2)  # the last evaluation; two steps
        assert again == pytest.approx(whole[-len(again) :], rel=1e-5)
        if system is PIPELINE:
            assert again == whole[-len(again) :]  # to the bit
    samples = [event["consumed_samples"] for event in events(config.run_dir, "step")]
    assert samples[-2:] == samples[4:6]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_files_that_the_disk_does_not_give_are_read_again(
    begun: RunConfig, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An error is no damage: it is waited for, and raised after the limit; a missing file is damage at once."""
    folder = checkpoint_path(begun.run_dir, whole_checkpoints(begun.run_dir)[-1])
    errors = [errno.EIO, errno.ENOTCONN, errno.ESTALE]

    def read(path: Path) -> str:
        if errors:
            raise OSError(errors.pop(), "no answer", str(path))
        return md5_file(path)

    monkeypatch.setattr(checkpoint_reader, "md5_file", read)
    monkeypatch.setattr("benchmark.run_record.small_files.time.sleep", lambda seconds: None)
    assert checkpoint_reader._damaged(folder, lambda names: names, patience_s=60.0) == []
    assert "no answer; tried again for up to 60 s" in capfd.readouterr().err
    errors.append(errno.EIO)
    with pytest.raises(OSError, match="no answer"):
        checkpoint_reader._damaged(folder, lambda names: names, patience_s=0.0)
    assert checkpoint_reader._holds(folder / "missing", "0" * 32, patience_s=60.0) is False


def test_checkpoints_are_verified_by_the_checksums_command(begun: RunConfig) -> None:
    folder = checkpoint_path(begun.run_dir, 4)
    listed = folder / "digests.md5"
    assert command("checksums", "verify", folder, "--manifest", listed).returncode == 0
    names = {line.split("  ")[1] for line in listed.read_text().splitlines()}
    assert names == {path.name for path in folder.iterdir()} - {"digests.md5"}


@pytest.mark.slow
def test_checkpoint_of_another_model_is_refused(begun: RunConfig, tmp_path: Path) -> None:
    config = continue_from(begun, tmp_path / "run", system=ONE)
    smaller = dataclasses.replace(config.benchmark, model=dataclasses.replace(config.benchmark.model, hidden_size=80))
    recorded = json.loads((config.run_dir / "config.json").read_text())
    recorded["benchmark"]["model"]["hidden_size"] = 80
    (config.run_dir / "config.json").write_text(json.dumps(recorded))
    with pytest.raises(RuntimeError, match="belongs to another model"):
        in_processes(1, train, dataclasses.replace(config, benchmark=smaller))


def _save(config: RunConfig) -> float:
    """Save the initial state; the sum of this process's parts of it."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        writer = Checkpointer(state, config.run_dir, config.checkpoints)
        writer.save()
        written = writer.wait()
        assert written is not None and written.failure is None
        return sum(float(local(tensor).double().abs().sum()) for tensor in state.tensors().values())


def _load(config: RunConfig) -> tuple[str, float]:
    """What is complained of, and the sum of what is loaded over zeros."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        for tensor in state.tensors().values():
            tensor.zero_()
        complaint = ""
        try:
            load_checkpoint(state, checkpoint_path(config.run_dir, 0))
        except InputError as error:
            complaint = str(error)
        return complaint, sum(float(local(tensor).double().abs().sum()) for tensor in state.tensors().values())


@pytest.mark.slow
def test_all_of_what_two_processes_wrote_or_nothing_is_loaded(inputs: Inputs, tmp_path: Path) -> None:
    written = in_processes(2, _save, inputs.config(tmp_path / "run", system=system_of(2)))
    ((complaint, loaded),) = in_processes(1, _load, inputs.config(tmp_path / "run"))
    assert complaint == ""
    assert loaded == pytest.approx(sum(written), rel=1e-12)
    folder = checkpoint_path(tmp_path / "run", 0)
    for damage, name in ((flip_a_bit, "__1_0.distcp"), (Path.unlink, ".metadata"), (Path.unlink, "digests.md5")):
        damage(folder / name)
        ((complaint, loaded),) = in_processes(1, _load, inputs.config(tmp_path / "run"))
        assert complaint.startswith(f"{folder}: ")
        assert name in complaint
        assert complaint.endswith(" damaged or missing; use another checkpoint")
        assert loaded == 0
