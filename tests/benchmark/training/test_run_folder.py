"""The folder of a run: what begins anew, what continues, what is refused, and how the log ends."""

import dataclasses
import errno
import functools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.run_config import RunConfig
from benchmark.run_record.attempt_folder import AttemptEnding, AttemptStart, write_ending, write_start
from benchmark.run_record.checkpoint_folder import DamagedCheckpoint, progress_as_json, publish_checkpoint
from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.background_sink import Background
from benchmark.run_record.events.event import Event
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.events.mlperf_log import MlperfLog
from benchmark.run_record.file_names import attempt_path, checkpoint_path, summary_path
from benchmark.run_record.run_progress import Evaluation, starting_progress
from benchmark.training.engine.rank_environment import Environment
from benchmark.training.resume_point import ResumePoint, older_point
from benchmark.training.run_folder import event_sinks, open_run_folder
from benchmark.training.run_log import RunLog
from benchmark.training.same_run import ContentIdentity, InputIdentities, as_json, read_identities
from foundation.errors import InputError
from tests.benchmark.runs import events, mlperf
from tests.benchmark.tiny import CPU, SHORT, TINY, Inputs
from tests.support import changed


def configured(run_dir: Path, **fields: Any) -> RunConfig:
    system = dataclasses.replace(CPU, micro_batch_size=2)
    return changed(RunConfig(benchmark=SHORT, system=system, run_dir=run_dir), **{"seed": 17, **fields})


def resumed_at(log: RunLog) -> int | None:
    assert log.resume_point is not None
    return log.resume_point.checkpoint


def clock(log: RunLog) -> Any:
    return log.run_clock(eval_tokens=289, barrier=lambda: None)


def run_to_checkpoint(config: RunConfig, *, steps: int, lost_steps: int, inputs: InputIdentities | None = None) -> None:
    """A run that saved after ``steps`` steps, and was killed when it had logged ``lost_steps`` more."""
    with open_run_folder(config, rank=0, inputs=inputs) as log, clock(log):
        for _ in range(steps):
            log.progress.steps += 1
            log.events.point("tracked_stats", step=log.progress.steps)
        log.progress.evaluations.append(Evaluation(log.progress.trained_tokens, 4.5))
        log.about_to_save()
        _write_checkpoint(config.run_dir, log)
        for number in range(lost_steps):
            log.events.point("tracked_stats", step=steps + 1 + number)


def _write_checkpoint(run_dir: Path, log: RunLog) -> None:
    final = checkpoint_path(run_dir, log.progress.steps)
    partial = final.with_name(f"{final.name}.partial")
    partial.mkdir(parents=True)
    (partial / ".metadata").touch()
    publish_checkpoint(partial, final, {}, progress_as_json(log.progress))


def test_new_run_writes_its_configuration_with_the_seed(tmp_path: Path) -> None:
    config = configured(tmp_path / "deep" / "run", train_data_path=("a", "b"), result_number=3)
    with open_run_folder(config, rank=0) as log:
        assert resumed_at(log) is None
        assert (log.progress.steps, log.progress.seed, log.progress.start_samples) == (0, 17, 48_000)
    written = json.loads((config.run_dir / "config.json").read_text())
    assert written == as_json(config)
    assert written["data"]["train_data_path"] == ["a", "b"]
    assert written["benchmark"]["model"]["num_layers"] == 4
    assert written["run_dir"] == str(config.run_dir)
    keys = [json.loads(line[9:])["key"] for line in (config.run_dir / "result_3.txt").read_text().splitlines()]
    assert keys == ["cache_clear", "init_start"]


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    config = configured(tmp_path / "run", seed=None)
    with open_run_folder(config, rank=1) as log:
        log.resume(ResumePoint(starting_progress(SHORT, 17)))
        with clock(log):
            log.about_to_save()
            log.end(StopReason("success", ""))
    assert not config.run_dir.exists()


def test_seed_is_drawn_anew_and_in_range(tmp_path: Path) -> None:
    seeds = []
    for name in ("a", "b", "c"):
        with open_run_folder(configured(tmp_path / name, seed=None), rank=0) as log:
            seeds.append(log.progress.seed)
        assert json.loads((tmp_path / name / "config.json").read_text())["data"]["seed"] == seeds[-1]
    assert len(set(seeds)) == 3
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_killed_before_its_first_checkpoint_it_begins_again_with_its_seed(tmp_path: Path) -> None:
    with open_run_folder(configured(tmp_path, seed=None), rank=0) as log:
        seed = log.progress.seed
    (tmp_path / "result_0.txt").write_text("half a li")
    with open_run_folder(configured(tmp_path, seed=None), rank=0) as log:
        assert (log.progress.seed, resumed_at(log)) == (seed, None)
    assert [event["key"] for event in mlperf(tmp_path)] == ["cache_clear", "init_start"]
    with open_run_folder(configured(tmp_path, seed=5), rank=0) as log:
        assert log.progress.seed == 5  # nothing is lost yet, so another one may be given


def test_finished_run_is_refused(tmp_path: Path) -> None:
    config = configured(tmp_path)
    with open_run_folder(config, rank=0):
        pass
    summary_path(tmp_path).write_text("{}")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match="holds a finished run; choose another --run-dir"), open_run_folder(config, 0):
        pass
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_folder_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foundation.outputs.lock.PATIENCE_S", 0.1)
    config = configured(tmp_path)
    with (
        open_run_folder(config, rank=0),
        pytest.raises(InputError, match="choose another --run-dir"),
        open_run_folder(config, rank=0),
    ):
        pass


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"precision": "fp32"}, "the run began with precision bf16, now it is fp32; give the same options"),
        ({"benchmark": dataclasses.replace(SHORT, target_log_perplexity=2.0)}, "the run began with benchmark"),
        ({"seed": 18}, "the run began with seed 17; leave --seed out to continue it"),
    ],
)
def test_another_run_is_not_continued(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    config = configured(tmp_path, train_data_path=("a",))
    run_to_checkpoint(config, steps=2, lost_steps=0)
    with pytest.raises(InputError, match=complaint), open_run_folder(changed(config, **change), rank=0):
        pass
    system = dataclasses.replace(config.system, micro_batch_size=1)
    with open_run_folder(changed(config, system=system, save_interval=7, seed=None), rank=0) as log:
        assert resumed_at(log) is not None


def test_a_run_of_a_version_with_another_order_is_not_continued(tmp_path: Path) -> None:
    config = configured(tmp_path, train_data_path=("a",))
    run_to_checkpoint(config, steps=2, lost_steps=0)
    written = json.loads((tmp_path / "config.json").read_text())
    del written["benchmark"]["shuffle_documents"]
    (tmp_path / "config.json").write_text(json.dumps(written))
    shuffled = dataclasses.replace(SHORT, shuffle_documents=True)
    refused = pytest.raises(InputError, match="version that read other training windows, for it did not shuffle")
    with refused, open_run_folder(changed(config, benchmark=shuffled), rank=0):
        pass
    with open_run_folder(config, rank=0) as log:
        assert resumed_at(log) is not None


def test_what_it_reads_is_compared_by_contents_once_that_is_noted(tmp_path: Path) -> None:
    def reading(lengths: str) -> InputIdentities:
        return InputIdentities([ContentIdentity("a", {"lengths_md5": lengths}, None)], None, [], None, None)

    config = configured(tmp_path, train_data_path=("a",))
    run_to_checkpoint(config, steps=2, lost_steps=0, inputs=reading("1"))
    moved = changed(config, train_data_path=("elsewhere/a",))
    with open_run_folder(moved, rank=0, inputs=reading("1")) as log:
        assert resumed_at(log) is not None
    moved_data = pytest.raises(InputError, match=r"--train-data-path a: not the contents .* \(lengths_md5 1, now 2\)")
    with moved_data, open_run_folder(config, rank=0, inputs=reading("2")):
        pass
    shutil.rmtree(tmp_path / "checkpoints")
    with open_run_folder(config, rank=0, inputs=reading("2")) as log:
        assert resumed_at(log) is None  # it begins anew, with what is there now
    assert read_identities(tmp_path) == reading("2")


@pytest.mark.parametrize("content", ["{", "[]", '{"seed": 1}'])
def test_damaged_configuration_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with (
        pytest.raises(InputError, match=r"config\.json: not a run's configuration .* choose another --run-dir"),
        open_run_folder(configured(tmp_path), rank=0),
    ):
        pass


def test_continued_run_has_the_log_of_its_checkpoint(tmp_path: Path) -> None:
    config = configured(tmp_path)
    run_to_checkpoint(config, steps=2, lost_steps=3)
    killed = mlperf(tmp_path)
    assert [event["key"] for event in killed].count("run_stop") == 1
    steps_logged = len(events(tmp_path, "tracked_stats"))
    with open_run_folder(changed(config, seed=None), rank=0) as log:
        assert resumed_at(log) is not None
        assert (log.progress.steps, log.progress.restarts, log.progress.seed) == (2, 1, 17)
        assert log.progress.evaluations == [Evaluation(384, 4.5)]
        with clock(log):
            pass
    logged = mlperf(tmp_path)
    kept = killed.index(next(event for event in killed if event["metadata"].get("step") == 3))
    assert logged[:kept] == killed[:kept]
    assert [event["key"] for event in logged[kept:]] == [
        "restart",
        "run_stop",
        "train_samples",
        "trained_samples",
        "epoch_stop",
    ]
    assert (logged[kept]["value"], logged[kept]["metadata"]["step"]) == (1, 384)
    assert [event["key"] for event in logged].count("run_start") == 1
    assert len(events(tmp_path, "tracked_stats")) == steps_logged  # events.jsonl keeps what was lost


def test_log_begins_anew_where_neither_a_checkpoint_nor_a_clock_is_left(tmp_path: Path) -> None:
    config = configured(tmp_path)
    run_to_checkpoint(config, steps=2, lost_steps=0)
    with open_run_folder(config, rank=0) as log:
        os.truncate(tmp_path / "result_0.txt", 0)
        assert log.mlperf_log is not None and log.resume_point is not None
        damage = DamagedCheckpoint(checkpoint_path(tmp_path, 2), ["__0_0.distcp"])
        log.resume(older_point(tmp_path, log.resume_point, damage, log.mlperf_log))
        assert (log.progress.steps, log.progress.restarts, log.progress.seed) == (0, 0, 17)
        with clock(log):
            pass
    keys = [event["key"] for event in mlperf(tmp_path)]
    assert keys[:2] == ["cache_clear", "init_start"]
    assert [keys.count(key) for key in ("run_start", "run_stop", "restart")] == [1, 1, 0]


def test_a_disk_that_fails_at_a_checkpoint_loses_no_line_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is killed before the disk works again."""
    config, write = configured(tmp_path), MlperfLog.write

    def refuse(log: MlperfLog, event: Event) -> None:
        if event.key == "tracked_stats":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(log, event)

    with monkeypatch.context() as failing:
        failing.setattr(MlperfLog, "write", refuse)
        failing.setattr(Background, "close", functools.partialmethod(Background.close, 0.05))
        run_to_checkpoint(config, steps=2, lost_steps=1)
    assert "tracked_stats" not in [event["key"] for event in mlperf(tmp_path)]
    with open_run_folder(config, rank=0) as log, clock(log):
        pass
    logged = mlperf(tmp_path)
    steps = [event["metadata"]["step"] for event in logged if event["key"] == "tracked_stats"]
    assert steps == [1, 2]
    assert [event["key"] for event in logged].count("restart") == 1


def test_a_log_that_lost_lines_since_its_checkpoint_is_told(tmp_path: Path) -> None:
    config = configured(tmp_path)
    with open_run_folder(config, rank=0) as log, clock(log):
        assert log.mlperf_log is not None and log.events.drain(log.mlperf_log)
        log.about_to_save()
        _write_checkpoint(config.run_dir, log)
    os.truncate(tmp_path / "result_0.txt", 500)
    with open_run_folder(config, rank=0) as log, clock(log):
        pass
    told = [event["value"] for event in events(tmp_path, "message")]
    assert any(line.endswith(" bytes shorter than when the checkpoint was written: lines are lost") for line in told)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (StopReason("success", "", reached_target=True), "success"),
        (StopReason("success", ""), "aborted"),
        (StopReason("failed", ""), "aborted"),
    ],
)
def test_run_that_ends_by_itself_has_one_run_stop(end: StopReason, status: str, tmp_path: Path) -> None:
    config = configured(tmp_path)
    with open_run_folder(config, rank=0) as log, clock(log):
        log.progress.steps = 3
        log.end(end)
        log.end(StopReason("interrupted", ""))
    logged = mlperf(tmp_path)
    assert [event["key"] for event in logged][-4:] == ["run_stop", "train_samples", "trained_samples", "epoch_stop"]
    assert [event["metadata"]["status"] for event in logged if event["key"] == "run_stop"] == [status]
    assert logged[-2]["value"] == logged[-1]["metadata"]["epoch_num"] == 576
    assert [event["value"] for event in events(tmp_path, "message")] == [f"{end.ending} after 576 tokens"]


@pytest.mark.parametrize("failure", [ZeroDivisionError, SystemExit])
def test_run_that_something_ends_has_one_run_stop(failure: type[BaseException], tmp_path: Path) -> None:
    config = configured(tmp_path)
    with pytest.raises(failure), open_run_folder(config, rank=0) as log, clock(log):
        raise failure
    stops = [event["metadata"]["status"] for event in mlperf(tmp_path) if event["key"] == "run_stop"]
    assert stops == ["aborted"]


def test_clock_starts_when_all_processes_are_ready(tmp_path: Path) -> None:
    config = configured(tmp_path)
    keys: list[list[str]] = []
    with open_run_folder(config, rank=0) as log:

        def barrier() -> None:
            assert log.mlperf_log is not None
            log.events.drain(log.mlperf_log)
            keys.append([event["key"] for event in mlperf(tmp_path)])

        with log.run_clock(eval_tokens=289, barrier=barrier):
            pass
    assert keys[0] == ["cache_clear", "init_start"]
    assert keys[1][-3:] == ["init_stop", "run_start", "epoch_start"]
    assert len(keys) == 2


def test_events_tell_how_the_attempt_before_ended(tmp_path: Path) -> None:
    config = configured(tmp_path)
    for name, second in (("0001", 1.0), ("0002", 2.0), ("0003", 3.0)):
        folder = attempt_path(tmp_path, name)
        folder.mkdir(parents=True)
        write_start(folder, AttemptStart(name, None, None, None, second, None, ("n1",)))
        if name != "0003":
            write_ending(folder, AttemptEnding(second, 137, "again", f"rank 1 was killed in {name}"))
    with open_run_folder(config, 0) as opened:
        opened.note_last_incident(tmp_path, Environment(0, 1, 0, attempt="0003"))
        opened.note_last_incident(tmp_path, Environment(0, 1, 0, attempt="0001"))  # 0003 says nothing
    (incident,) = events(tmp_path, "incident")
    assert (incident["value"], incident["attempt"], incident["action"]) == (
        "rank 1 was killed in 0002",
        "0002",
        "again",
    )


def test_clock_goes_on_where_all_checkpoints_are_damaged(tmp_path: Path) -> None:
    """The log keeps its run_start, and says that the run was started again at step 0."""
    config = configured(tmp_path)
    run_to_checkpoint(config, steps=2, lost_steps=0)
    began = next(event["time_ms"] for event in mlperf(tmp_path) if event["key"] == "run_start")
    (checkpoint_path(tmp_path, 2) / "progress.json").write_text("{")
    with open_run_folder(config, rank=0) as log, clock(log):
        assert (log.progress.steps, log.progress.restarts, resumed_at(log)) == (0, 1, None)
    logged = mlperf(tmp_path)
    keys = [event["key"] for event in logged]
    for key in ("init_start", "seed", "run_start", "epoch_start", "restart", "run_stop"):
        assert keys.count(key) == 1, key
    assert keys[keys.index("epoch_start") + 1] == "restart"
    assert [event["time_ms"] for event in logged if event["key"] == "run_start"] == [began]
    assert next(event["metadata"]["step"] for event in logged if event["key"] == "restart") == 0


def test_three_files_without_options_and_gauges_with_theirs(tmp_path: Path) -> None:
    every: list[dict[str, Any]] = [{}, {"prometheus_textfile": tmp_path / "gpt3.prom"}]
    for number, options in enumerate(every):
        folder = tmp_path / f"run_{number}"
        folder.mkdir()
        config = Inputs(tmp_path, tmp_path).config(folder, **options)
        mlperf_log = MlperfLog(folder / "r")
        log = EventLog([mlperf_log, *event_sinks(folder, config.logging, TINY.expected_steps, config.system.name)])
        log.point("run_start")
        log.close()
        assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "r"]
    assert 'gpt3_run_active{run="run_1",system="cpu_p1"} 0.0' in (tmp_path / "gpt3.prom").read_text().splitlines()
