"""The names of all files and folders that a run leaves; no other module spells one.

RUN_DIR/config.json        the resolved configuration, with the seed, as the newest attempt began
        inputs.json        identities of the inputs, by their contents, as the run began
        manifests/         copies of the inputs' manifests
        result_N.txt       the MLPerf log
        events.jsonl       every event
        evidence.jsonl     the evidence chain, with --evidence
        summary.json       how the run ended; a run without it has not finished
        stopped.json       why the run stopped, if it may be continued
        plan.json          the plan that the report compares the run with
        lease.json         the holder of the run: lease.py
        save, exit         requests of a person
        checkpoints/       checkpoint_folder.py
        attempts/          attempt_folder.py
        snapshot/          the code that runs, and where it ran (benchmark/launch/slurm/snapshot.py)
        slurm_JOB.out      the log of a job
        tensorboard/, wandb/, profile/, after_checkpoint/
"""

from __future__ import annotations

from pathlib import Path

CONFIG_FILE = "config.json"
INPUTS_FILE = "inputs.json"
MANIFESTS_FOLDER = "manifests"
RESULT_FILES = "result_*.txt"
"""Pattern of the names of MLPerf logs."""
EVENTS_FILE = "events.jsonl"
EVIDENCE_FILE = "evidence.jsonl"
SUMMARY_FILE = "summary.json"
STOP_NOTE_FILE = "stopped.json"
PLAN_FILE = "plan.json"
LEASE_FILE = "lease.json"
SAVE_REQUEST = "save"
EXIT_REQUEST = "exit"
TENSORBOARD_FOLDER = "tensorboard"
WANDB_FOLDER = "wandb"
PROFILE_FOLDER = "profile"
AFTER_CHECKPOINT_FOLDER = "after_checkpoint"

CHECKPOINTS_FOLDER = "checkpoints"
SET_ASIDE_FOLDER = "set_aside"
PROGRESS_FILE = "progress.json"
DIGESTS_FILE = "digests.md5"
SHARD_METADATA = ".metadata"
"""PyTorch's list of the tensors in the shards."""
RETIRED = ".retired"
"""Suffix of the name of a folder that is being removed."""

ATTEMPTS_FOLDER = "attempts"
ATTEMPT_START_FILE = "attempt.json"
ATTEMPT_ENDING_FILE = "ended.json"
LAUNCHER_LOG = "launcher.log"
ALARM_FILE = "alarm"
RANK_LOG = "log"
INCIDENT_FILE = "incident.json"
STACKS_FILE = "stacks.txt"
COLLECTIVES_FILE = "collectives.json"
MEMORY_FILE = "memory.pickle"

SNAPSHOT_FOLDER = "snapshot"
CODE_FOLDER = "code"


def result_name(number: int) -> str:
    return f"result_{number}.txt"


def result_path(run_dir: Path, number: int) -> Path:
    return run_dir / result_name(number)


def summary_path(run_dir: Path) -> Path:
    return run_dir / SUMMARY_FILE


def lease_path(run_dir: Path) -> Path:
    return run_dir / LEASE_FILE


def job_log(run_dir: Path, job: str) -> Path:
    return run_dir / f"slurm_{job}.out"


def checkpoints_folder(run_dir: Path) -> Path:
    return run_dir / CHECKPOINTS_FOLDER


def checkpoint_path(run_dir: Path, steps: int) -> Path:
    return checkpoints_folder(run_dir) / f"step_{steps:08d}"


def attempts_folder(run_dir: Path) -> Path:
    return run_dir / ATTEMPTS_FOLDER


def attempt_path(run_dir: Path, attempt: str) -> Path:
    return attempts_folder(run_dir) / attempt


def rank_file(attempt: Path, rank: int, suffix: str) -> Path:
    """Return the path of a rank's file in an attempt's folder; ``suffix``: RANK_LOG, INCIDENT_FILE, ..."""
    return attempt / f"rank_{rank:05d}.{suffix}"


def after_checkpoint_log(run_dir: Path, steps: int) -> Path:
    """Return the path of the output of --after-checkpoint's command for the checkpoint of ``steps``."""
    return run_dir / AFTER_CHECKPOINT_FOLDER / f"step_{steps:08d}.log"


def profile_path(run_dir: Path, first_step: int, last_step: int, rank: int) -> Path:
    return run_dir / PROFILE_FOLDER / f"steps_{first_step}_{last_step}_rank_{rank:05d}.json.gz"


def snapshot_folder(run_dir: Path) -> Path:
    return run_dir / SNAPSHOT_FOLDER


def code_folder(run_dir: Path) -> Path:
    """Return the folder of the run's copy of the code."""
    return snapshot_folder(run_dir) / CODE_FOLDER
