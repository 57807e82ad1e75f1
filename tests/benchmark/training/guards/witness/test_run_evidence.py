"""The evidence of whole runs: beginning, interruption, end."""

import errno
import functools
import json
import shutil
from pathlib import Path

import pytest

from benchmark.config.run_config import RunConfig
from benchmark.events.background_sink import Background
from benchmark.events.event import Event
from benchmark.events.mlperf_log import MlperfLog
from benchmark.evidence.chain_links import read_chain
from benchmark.evidence.link_contents import Dropped, ResumeLink, StepLink
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path, read_progress
from benchmark.training.guards.witness.evidence_log import sha256_of
from benchmark.training.guards.witness.run_evidence import digests_by_name
from benchmark.training.loop import Status
from benchmark.training.train import train
from tests.benchmark.runs import mlperf
from tests.benchmark.tiny import SHORT, Inputs, in_processes


@pytest.fixture(scope="module")
def finished(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    config = inputs.config(tmp_path_factory.mktemp("finished") / "run", SHORT, evidence=True, save_interval=2)
    assert in_processes(1, train, config) == ["success"]
    return config


def test_log_and_chain_hold_each_other(finished: RunConfig) -> None:
    chain, log = read_chain(finished.run_dir / "evidence.jsonl"), mlperf(finished.run_dir)
    assert chain.end is not None
    assert (chain.end.status, chain.end.step) == ("success", 6)
    assert chain.end.log_sha256 == sha256_of(finished.run_dir / "result_0.txt")
    keys = [event["key"] for event in log]
    assert keys.index("evidence") == keys.index("run_stop") - 1
    assert log[keys.index("evidence")]["value"] == chain.links[-1].previous


@pytest.mark.slow
@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
def test_a_log_that_refuses_its_last_lines_accuses_nobody(for_ever: bool, inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", SHORT, evidence=True)
    assert in_processes(1, _train_with_failing_log, config, for_ever) == ["success"]
    chain = read_chain(config.run_dir / "evidence.jsonl")
    assert chain.problem is None
    said = (config.run_dir / "events.jsonl").read_text()
    assert ("the evidence has no end: lines of result_0.txt could not be written" in said) is for_ever
    if for_ever:
        assert chain.end is None
    else:
        assert chain.end is not None
        assert chain.end.log_sha256 == sha256_of(config.run_dir / "result_0.txt")


def _train_with_failing_log(config: RunConfig, for_ever: bool) -> Status:
    refused: list[str] = []
    write = MlperfLog.write

    def refuse(log: MlperfLog, event: Event) -> None:
        if event.key == "run_stop" and (for_ever or not refused):
            refused.append(event.key)
            raise OSError(errno.EROFS, "Read-only file system")
        write(log, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MlperfLog, "write", refuse)
        if for_ever:
            patch.setattr(Background, "drain", functools.partialmethod(Background.drain, 0.05))
            patch.setattr(Background, "close", functools.partialmethod(Background.close, 0.05))
        return train(config)


def test_beginning_names_the_run(finished: RunConfig) -> None:
    begin = read_chain(finished.run_dir / "evidence.jsonl").begin
    assert begin is not None
    config = json.loads((finished.run_dir / "config.json").read_text())
    assert (begin.seed, begin.precision, begin.benchmark) == (17, "fp32", config["benchmark"])
    assert begin.machinery.layout["devices"] == 1
    assert begin.machinery.kernels["deterministic"] is True
    datasets = [f"{name}.{kind}" for name in ("train_0", "train_1", "valid") for kind in ("bin", "idx")]
    assert set(begin.inputs) == {*datasets, "checkpoint"}
    assert sum(begin.sizes) > 70_000


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["at its end", "within a line"])
def test_a_continued_run_continues_its_chain(killed: str, finished: RunConfig, tmp_path: Path) -> None:
    """As after kill -9 behind the checkpoint of step 4: two more steps are there, and count no more."""
    shutil.copytree(finished.run_dir, tmp_path / "run")
    evidence = tmp_path / "run" / "evidence.jsonl"
    whole = read_chain(evidence)
    (tmp_path / "run" / "summary.json").unlink()
    shutil.rmtree(checkpoint_path(tmp_path / "run", 6))
    if killed == "within a line":
        evidence.write_bytes(evidence.read_bytes()[:-10])
    config = finished.changed(run_dir=tmp_path / "run", checkpoint=None)
    assert in_processes(1, train, config) == ["success"]
    chain = read_chain(evidence)
    assert (chain.problem, chain.torn) == (None, False)
    (resumed,) = chain.of(ResumeLink)
    head = read_progress(checkpoint_path(tmp_path / "run", 4)).evidence_head
    assert resumed.step == 4
    place = [type(link.content) for link in chain.links].index(ResumeLink)
    assert chain.links[place].previous == head
    lost = 5 if killed == "at its end" else 4
    dropped = {5: whole.head, 4: whole.links[-1].previous}
    assert resumed.dropped == Dropped(lost, dropped[lost])
    assert resumed.state.weights == whole.steps[4].weights
    assert [link.step for link in chain.of(StepLink)] == [1, 2, 3, 4, 5, 6]
    assert {step: link.weights for step, link in chain.steps.items()} == {
        step: link.weights for step, link in whole.steps.items()
    }
    assert chain.end is not None
    assert chain.end.log_sha256 == sha256_of(tmp_path / "run" / "result_0.txt")


def test_names_of_inputs_are_without_their_folders() -> None:
    inputs = {"/data/a": {"manifest": "/data/a.manifest.json", "md5": {"a.bin": "1", "a.idx": "2"}}, "/data/b": None}
    assert digests_by_name(inputs) == {"a.bin": "1", "a.idx": "2", "b": None}
