"""The command replay."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class ReplayCommand:
    """Train a stretch of a run again from its checkpoint, and compare it with the run's evidence record by record;
    check that log and checkpoint are those of the evidence.

    Nothing in the folder is executed. The comparison is to the bit if layout, device and versions are the run's, else
    with tolerances.

    Example: python -m benchmark replay runs/rehearsal/run_0 --steps 176:192

    Exit status: 0 every link holds, 1 one does not (the lines say which), 2 bad input.
    """

    run_dir: tyro.conf.Positional[Path]
    """Folder of a run that was trained with --evidence, or of its evidence in a package."""
    steps: str
    """Steps to train again as FIRST:LAST, counted since the initial checkpoint. Training starts from the newest
    checkpoint at or before FIRST."""
    checkpoint: Path | None = None
    """The initial checkpoint, if it has moved since the run."""
    train_data_path: tuple[str, ...] = ()
    """Training data, if they have moved: one dataset prefix, or weights and prefixes in turn."""
    valid_data_path: tuple[str, ...] = ()
    """Validation data, if they have moved: one dataset prefix, or weights and prefixes in turn."""
    log: Path | None = None
    """The run's MLPerf log, if it is not the one in its folder."""
    system: str | None = None
    """System to use in place of the run's: a name of benchmark/config/systems.py, or a TOML file."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from benchmark.replay.replay_run import ReplayOptions, replay, result_fields
        from benchmark.training.engine.distributed import end_process
        from stage.json_files import as_json

        given = (self.checkpoint, self.train_data_path, self.valid_data_path, self.log, self.system)
        result = replay(ReplayOptions(self.run_dir, self.steps, *given))
        if result is not None:  # on rank 0
            print(as_json(result_fields(result)) if self.json else result.text())
        end_process(0 if result is None or result.holds else 1)
