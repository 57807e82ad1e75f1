"""Which sinks a run has, by its options."""

import json
from pathlib import Path

from benchmark.events.mlperf_log import MlperfLog
from benchmark.training.engine.run_progress import Evaluation, starting_progress
from benchmark.training.run_folder import open_event_log
from tests.benchmark.tiny import TINY, Inputs


def test_notes_of_the_command_after_a_checkpoint_reach_the_events_of_the_run(tmp_path: Path) -> None:
    config = Inputs(tmp_path, tmp_path).config(tmp_path, after_checkpoint="bash -c 'echo \"of $CHECKPOINT_STEPS\"'")
    events = open_event_log(config, starting_progress(TINY, 1), MlperfLog(tmp_path / "result_0.txt"))
    events.note("checkpoint_written", steps=4, seconds=0.5, bytes=1)
    events.close()
    found = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["key"] for event in found] == ["checkpoint_written", "after_checkpoint"]
    assert (found[1]["value"], found[1]["steps"], found[1]["status"]) == ("done", 4, 0)
    assert (tmp_path / "after_checkpoint" / "step_00000004.log").read_text() == "of 4\n"
    assert (tmp_path / "result_0.txt").read_bytes() == b""


def test_gauges_and_the_time_to_the_end_know_what_was_before_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "gpt3.prom"
    config = Inputs(tmp_path, tmp_path).config(tmp_path, prometheus_textfile=path)
    (tmp_path / "checkpoints" / "step_00000004").mkdir(parents=True)
    progress = starting_progress(TINY, 1)
    progress.steps, progress.restarts, progress.evaluations = 4, 2, [Evaluation(768, 2.75)]
    events = open_event_log(config, progress, MlperfLog(tmp_path / "result_0.txt"))
    events.point("restart", 2, step=768)
    for step in (5, 6, 7):
        events.note("step", iteration=4000 + step, trained_tokens=192 * step, step_s=2.0)
    events.close()
    text = path.read_text()
    labels = f'{{run="{tmp_path.name}",system="cpu_p1"}}'
    for line in (
        f"gpt3_restarts{labels} 2.0",
        f"gpt3_evaluation_log_perplexity_nats{labels} 2.75",
        f"gpt3_checkpoint_steps{labels} 4.0",
        f"gpt3_iteration{labels} 4007.0",
        f"gpt3_target_seconds{labels} 10.0",
        f"gpt3_run_active{labels} 0.0",
    ):
        assert line in text.splitlines()


def test_nothing_but_the_three_files_without_options(tmp_path: Path) -> None:
    events = open_event_log(
        Inputs(tmp_path, tmp_path).config(tmp_path), starting_progress(TINY, 1), MlperfLog(tmp_path / "r")
    )
    events.point("run_start")
    events.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "r"]
