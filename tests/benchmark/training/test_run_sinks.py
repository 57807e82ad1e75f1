"""Which sinks a run has, by its options."""

from pathlib import Path
from typing import Any

from benchmark.events.mlperf_log import MlperfLog
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.run_sinks import open_event_log
from tests.benchmark.tiny import TINY, Inputs


def test_three_files_without_options_and_gauges_with_theirs(tmp_path: Path) -> None:
    every: list[dict[str, Any]] = [{}, {"prometheus_textfile": tmp_path / "gpt3.prom"}]
    for number, options in enumerate(every):
        folder = tmp_path / f"run_{number}"
        folder.mkdir()
        config = Inputs(tmp_path, tmp_path).config(folder, **options)
        events = open_event_log(config, starting_progress(TINY, 1), MlperfLog(folder / "r"))
        events.point("run_start")
        events.close()
        assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "r"]
    assert 'gpt3_run_active{run="run_1",system="cpu_p1"} 0.0' in (tmp_path / "gpt3.prom").read_text().splitlines()
