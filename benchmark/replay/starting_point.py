"""Where a replay starts from: a checkpoint of the run, or the initial one."""

import re
from pathlib import Path

from benchmark.evidence.chain_links import Chain
from benchmark.evidence.link_contents import BeginLink, CheckpointLink, ResumeLink, StatePrint
from benchmark.training.checkpoints.checkpoint_folder import (
    DIGESTS,
    PROGRESS,
    checkpoint_path,
    read_progress,
    whole_checkpoints,
)
from benchmark.training.engine.run_progress import Progress
from checksums.md5_list import read_list
from stage.errors import InputError

STEPS = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
MOST_LIST_BYTES, MOST_PROGRESS_BYTES = 1 << 26, 1 << 24


def parse_steps(text: str) -> tuple[int, int]:
    """``FIRST:LAST``. Raises InputError for anything else."""
    match = STEPS.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (1, 0)
    if first > last:
        raise InputError(f"steps {text!r:.40}: expected FIRST:LAST, such as 176:192; change --steps")
    return first, last


def start_of(run_dir: Path, chain: Chain, first: int, last: int) -> int:
    """Steps of the newest checkpoint at or before ``first``; 0: the initial one.

    Raises InputError where the chain does not have these steps, or there is nothing to start from.
    """
    steps = chain.steps
    if last not in steps and not (last == 0 and chain.begin is not None):
        there = f"steps {min(steps)} to {max(steps)}" if steps else "no step"
        raise InputError(f"{chain.path}: has {there}, not {last}; change --steps")
    saved = [found for found in whole_checkpoints(run_dir) if found <= first]
    if saved:
        return saved[-1]
    if chain.begin is None or chain.begin.step > 0:
        raise InputError(f"{run_dir}: no checkpoint at or before step {first}; change --steps")
    return 0


def progress_at(run_dir: Path, steps: int) -> Progress:
    """Of the run's checkpoint after that many steps, of which nothing is read that is not bounded.

    Raises InputError where it is damaged, names files that are not its own, or claims other steps.
    """
    folder = checkpoint_path(run_dir, steps)
    for name, most in ((DIGESTS, MOST_LIST_BYTES), (PROGRESS, MOST_PROGRESS_BYTES)):
        path = folder / name
        if not path.is_file() or path.stat().st_size > most:
            raise InputError(f"{path}: missing, no file, or more than {most:,} bytes; the checkpoint is not a run's")
    for name in read_list(folder / DIGESTS):
        if "/" in name or not (folder / name).is_file():
            raise InputError(f"{folder / DIGESTS}: lists {name!r:.80}, which is no file of the checkpoint")
    progress = read_progress(folder)
    if progress.steps != steps:
        raise InputError(f"{folder}: its progress.json is of {progress.steps} steps, not what its name says")
    return progress


def recorded_state(chain: Chain, steps: int) -> StatePrint | None:
    """Weights and moments after that many steps, as the chain has them last."""
    found = [
        link.content.state
        for link in chain.links
        if isinstance(link.content, BeginLink | CheckpointLink | ResumeLink) and link.content.step == steps
    ]
    return found[-1] if found else None
