"""The evidence of whole runs: beginning, interruption, end."""

import dataclasses
import errno
import functools
import shutil
from pathlib import Path

import pytest

from benchmark.config.run_config import RunConfig
from benchmark.run_record.checkpoint_folder import read_progress
from benchmark.run_record.endings import Ending
from benchmark.run_record.events.background_sink import Background
from benchmark.run_record.events.event import Event
from benchmark.run_record.events.mlperf_log import MlperfLog
from benchmark.run_record.evidence_chain import (
    BeginRecord,
    Chain,
    CheckpointRecord,
    EndRecord,
    EvaluationRecord,
    OptimizerStepRecord,
    broken_links,
    by_step,
    gaps,
    read_chain,
)
from benchmark.run_record.file_names import EVIDENCE_FILE, checkpoint_path
from benchmark.training.train import train
from tests.benchmark.runs import mlperf, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes
from tests.support import changed


@pytest.fixture
def finished(honest_run: Path, inputs: Inputs) -> RunConfig:
    return inputs.config(honest_run, SHORT, evidence=True, save_interval=2, keep_checkpoints=3)


def chain_of(config: RunConfig) -> Chain:
    """A chain in which nothing is broken."""
    chain = read_chain(config.run_dir / EVIDENCE_FILE)
    assert broken_links(chain, config.run_dir / "result_0.txt") == []
    return chain


def weights_by_step(chain: Chain) -> dict[int, str]:
    return {step: record.weights for step, (_, record) in by_step(chain.counting(), OptimizerStepRecord).items()}


def test_records_of_a_run(finished: RunConfig) -> None:
    chain = chain_of(finished)
    assert gaps(chain) == []
    kinds = [type(link.record) for link in chain.links]
    assert kinds == [
        BeginRecord,
        OptimizerStepRecord,
        OptimizerStepRecord,
        CheckpointRecord,
        OptimizerStepRecord,
        EvaluationRecord,
        OptimizerStepRecord,
        CheckpointRecord,
        OptimizerStepRecord,
        OptimizerStepRecord,
        EvaluationRecord,
        CheckpointRecord,
        EndRecord,
    ]
    begin = chain.links[0].record
    assert isinstance(begin, BeginRecord)
    assert (begin.config["seed"], begin.config["precision"], begin.continues) == (17, "fp32", "")
    assert set(begin.inputs) == {"train 0", "train 1", "valid 0", "checkpoint", "train weights", "valid weights"}
    assert str(finished.data.valid_data_path[1]) not in str(begin.inputs)
    firsts = [record.first_sample for _, record in by_step(chain.links, OptimizerStepRecord).values()]
    assert firsts == [48000 + 12 * step for step in range(6)]
    assert len(set(weights_by_step(chain).values())) == 6
    log = mlperf(finished.run_dir)
    keys = [event["key"] for event in log]
    assert keys.index("evidence") == keys.index("run_stop") - 1
    assert log[keys.index("evidence")]["value"] == chain.links[-1].previous


@pytest.mark.slow
def test_a_log_that_refuses_its_last_lines_accuses_nobody(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", SHORT, evidence=True)
    with pytest.raises(RuntimeError, match="lines of the end could not be written"):  # the run is not over without them
        in_processes(1, _train_with_failing_log, config)
    assert not (config.run_dir / "summary.json").exists()
    assert not isinstance(chain_of(config).links[-1].record, EndRecord)
    said = (config.run_dir / "events.jsonl").read_text()
    assert "the evidence has no end: lines of result_0.txt could not be written" in said


def _train_with_failing_log(config: RunConfig) -> Ending:
    write, drain = MlperfLog.write, Background.drain

    def refuse(log: MlperfLog, event: Event) -> None:
        if event.key == "run_stop":
            raise OSError(errno.EROFS, "Read-only file system")
        write(log, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MlperfLog, "write", refuse)
        patch.setattr(Background, "drain", lambda background, patience_s=0.05: drain(background, 0.05))
        patch.setattr(Background, "close", functools.partialmethod(Background.close, 0.05))
        return train(config)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [12, 0], ids=["torn", "no chain"])
def test_a_continued_run_continues_its_chain(kept: int, finished: RunConfig, tmp_path: Path) -> None:
    """As after kill -9 behind the checkpoint of step 4, in another topology then."""
    shutil.copytree(finished.run_dir, tmp_path / "run")
    evidence = tmp_path / "run" / EVIDENCE_FILE
    whole = read_chain(evidence)
    (tmp_path / "run" / "summary.json").unlink()
    shutil.rmtree(checkpoint_path(tmp_path / "run", 6))
    evidence.write_bytes(evidence.read_bytes()[:-10] if kept else b"mine\n")
    system = dataclasses.replace(system_of(2), micro_batch_size=finished.system.micro_batch_size)
    config = changed(finished, run_dir=tmp_path / "run", checkpoint=None, system=system)
    assert in_processes(2, train, config) == ["success"] * 2
    chain = chain_of(config)
    place, resumed = list(by_step(chain.links, BeginRecord).values())[-1]
    assert resumed.continues == read_progress(checkpoint_path(tmp_path / "run", 4)).evidence_head
    assert (resumed.step, resumed.weights) == (4, weights_by_step(whole)[4])
    assert place.line == kept + 1
    assert len(gaps(chain)) == (kept == 0)
    steps = sorted(by_step(chain.counting(), OptimizerStepRecord))
    assert steps == ([1, 2, 3, 4, 5, 6] if kept else [5, 6])
    aside = tmp_path / "run" / f"{EVIDENCE_FILE}.set_aside_1"
    assert not aside.exists() if kept else aside.read_bytes() == b"mine\n"
