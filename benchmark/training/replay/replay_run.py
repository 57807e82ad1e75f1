"""``benchmark replay``: train a stretch of a run, perhaps a stranger's, again and compare it with its evidence.

Nothing in the run's folder is executed. Only the model, the data and the files are read from its configuration; sizes
are bounded before memory is taken; checkpoints are read without their pickle.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.field_checks import step_range
from benchmark.config.number_formats import Precision
from benchmark.config.run_config import RunConfig
from benchmark.config.run_sections import DataOptions
from benchmark.config.system_config import System
from benchmark.config.systems import system_called
from benchmark.run_record.checkpoint_folder import read_progress
from benchmark.run_record.checkpoint_list import whole_checkpoints
from benchmark.run_record.evidence_chain import (
    BeginRecord,
    Chain,
    CheckpointRecord,
    EvaluationRecord,
    Fault,
    Link,
    OptimizerStepRecord,
    broken_links,
    by_step,
    gaps,
    printable,
    read_chain,
)
from benchmark.run_record.file_names import EVIDENCE_FILE, RESULT_FILES, checkpoint_path
from benchmark.run_record.run_progress import Progress, starting_progress
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.inputs import require_inputs
from benchmark.training.observers.evidence import input_digests
from benchmark.training.replay.replayed_run import Stretch, replay_on_ranks
from benchmark.training.same_run import input_identities
from foundation.errors import InputError
from foundation.plain_text import counted
from model.architectures import ARCHITECTURES
from model.decoder_sizes import DecoderSizes

LAYOUT = (
    *("nodes", "devices_per_node", "micro_batch_size", "tensor_parallel", "pipeline_parallel", "pipeline_chunks"),
    *("replicas", "shard_gradients", "recompute"),
)
"""Fields of the system that determine the order of sums, and with it the bits."""
BOUNDS = {
    "train_samples": 200_000_000,
    "global_batch_size": 1 << 20,
    "num_layers": 4096,
    **dict.fromkeys(("seq_length", "hidden_size", "max_position_embeddings", "ffn_hidden_size"), 1 << 17),
    "padded_vocab_size": 1 << 22,
}
"""Largest accepted values, ten times the benchmark's and more: unchecked numbers must not decide how much memory is
taken."""
TOLERANCES: Mapping[Precision, Mapping[str, float]] = {
    "fp32": {"loss": 5e-5, "grad_norm": 0.01, "log_perplexity": 5e-5},
    "bf16": {"loss": 2e-3, "grad_norm": 0.25, "log_perplexity": 2e-3},
    "fp8": {"loss": 2e-3, "grad_norm": 0.25, "log_perplexity": 2e-3},
}
"""Largest relative differences for a replay that computes in another order; measured in docs/evidence.md."""
EXACT = {"loss": 0.0, "grad_norm": 0.0, "log_perplexity": 0.0}
COMPARED: tuple[tuple[type[OptimizerStepRecord] | type[EvaluationRecord], tuple[str, ...]], ...] = (
    (OptimizerStepRecord, ("first_sample", "learning_rate", "loss", "grad_norm", "weights")),
    (EvaluationRecord, ("log_perplexity",)),
)
"""Compared fields of a step and of an evaluation."""
MOST_LINES = 40


@dataclass(frozen=True)
class ReplayOptions:
    """Options of the command; None and () keep the run's values."""

    run_dir: Path
    steps: str
    """Range of steps as FIRST:LAST."""
    checkpoint: Path | None = None
    train_data_path: tuple[str, ...] = ()
    valid_data_path: tuple[str, ...] = ()
    log: Path | None = None
    system: str | None = None


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay."""

    run_dir: str
    first: int
    last: int
    """Range of steps that was asked for."""
    start: int | None
    """Steps of the checkpoint that training started from; None if nothing was trained."""
    compared_steps: int
    why_not_exact: str | None
    """The difference from the run's machinery; None if the same bits are due."""
    deviations: list[Fault]
    notes: list[str]

    @property
    def holds(self) -> bool:
        return not self.deviations

    def text(self) -> str:
        """Describe the result in a few lines, with the links that do not hold last."""
        verdict = "every link holds" if self.holds else f"{len(self.deviations)} links do not hold"
        work = "nothing was trained"
        if self.start is not None:
            origin = f"the checkpoint after {self.start} steps" if self.start else "the initial checkpoint"
            precision = f"with tolerances ({printable(self.why_not_exact)})" if self.why_not_exact else "to the bit"
            work = f"{counted(self.compared_steps, 'step')} trained again from {origin} and compared {precision}"
        lines = [f"{self.run_dir}: steps {self.first} to {self.last}: {work}: {verdict}"]
        lines += [f"  note: {printable(note)}" for note in self.notes]
        lines += [f"  {fault.text()}" for fault in self.deviations[:MOST_LINES]]
        if len(self.deviations) > MOST_LINES:
            lines.append(f"  and {len(self.deviations) - MOST_LINES} more")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Recorded:
    """The configuration in a begin record."""

    benchmark: Benchmark
    system: System
    precision: Precision
    deterministic: bool
    seed: int
    train_data_path: tuple[str, ...]
    valid_data_path: tuple[str, ...]
    checkpoint: str | None


def replay(options: ReplayOptions) -> ReplayResult | None:
    """Check the chain and the log, train the steps again and compare; return None on ranks other than 0.

    Raises InputError if the input gives no result. Recorded values that do not hold are faults of the result.
    """
    environment = read_environment()
    first, last = step_range(options.steps)
    chain = read_chain(options.run_dir / EVIDENCE_FILE)
    faults, notes = broken_links(chain, _log_of(options)), gaps(chain)
    counting = chain.counting()

    def result(start: int | None = None, steps: int = 0, reason: str | None = None) -> ReplayResult:
        return ReplayResult(str(options.run_dir), first, last, start, steps, reason, faults, notes)

    if chain.problem is not None:
        return result()
    start = _start_of(options.run_dir, counting, first, last)
    begin_link = _begin_link_of(counting, start)
    config = _config(options, begin_link[1])
    if differing_inputs := _other_inputs(config.data, *begin_link):
        faults += differing_inputs
        return result()
    if environment.rank == 0:
        require_inputs(config.data, config.benchmark, begins=start == 0)
    progress, saved = starting_progress(config.benchmark, config.data.seed or 0), begin_link[0]
    if start:
        progress = read_progress(checkpoint_path(options.run_dir, start))
        saved_link = _saved(chain, progress, start)
        if saved_link is None or progress.seed != config.data.seed:
            recorded = f"seed {progress.seed}, {progress.steps} steps, digest {progress.evidence_head or 'none'}"
            expected = f"seed {config.data.seed}, {start} steps and the digest of their record"
            line = saved_link.line if saved_link else None
            faults.append(Fault(line, start, "the checkpoint's progress.json", expected, recorded))
            return result()
        saved = saved_link
    evaluations = [step for step in by_step(counting, EvaluationRecord) if start < step <= last]
    origin = checkpoint_path(options.run_dir, start) if start else None
    stretch = Stretch(config, origin, progress, last, evaluations)
    with tempfile.TemporaryDirectory() as folder:
        replayed = replay_on_ranks(stretch, environment, Path(folder))
    if replayed is None:
        return None
    reason = _why_not_exact(counting, start, last, replayed)
    faults += _differences(saved, counting, replayed, EXACT if reason is None else TOLERANCES[config.precision])
    return result(start, last - start, reason)


def _log_of(options: ReplayOptions) -> Path:
    """Return the run's MLPerf log. Raises InputError if there is none, or more than one."""
    logs = [options.log] if options.log is not None else sorted(options.run_dir.glob(RESULT_FILES))
    if len(logs) != 1 or not logs[0].is_file():
        raise InputError(f"{options.log or options.run_dir}: no MLPerf log, or several; give the run's with --log")
    return logs[0]


def _start_of(run_dir: Path, counting: Sequence[Link], first: int, last: int) -> int:
    """Return the steps of the newest checkpoint at or before ``first``; 0 stands for the initial one.

    Raises InputError if the chain does not have these steps, or there is no checkpoint to start from.
    """
    steps = by_step(counting, OptimizerStepRecord)
    if not counting or not isinstance(counting[0].record, BeginRecord) or (last and last not in steps):
        steps_text = f"steps {min(steps)} to {max(steps)}" if steps else "no step"
        raise InputError(f"{run_dir}: its evidence has {steps_text}, not {last}; change --steps")
    start = max((saved for saved in whole_checkpoints(run_dir) if saved <= first), default=0)
    if start < counting[0].record.step:
        raise InputError(f"{run_dir}: no checkpoint between the evidence's beginning and step {first}; change --steps")
    return start


def _begin_link_of(counting: Sequence[Link], start: int) -> tuple[Link, BeginRecord]:
    """Return the begin record of the attempt that did the first step after ``start``."""
    begins = [(link, link.record) for link in counting if isinstance(link.record, BeginRecord)]
    return [(link, record) for link, record in begins if record.step <= start][-1]


def _saved(chain: Chain, progress: Progress, start: int) -> Link | None:
    """Return the record of the checkpoint, or, if a full disk lost it, that of the attempt that went on from it.

    Returns None if the chain has neither.
    """
    head = progress.evidence_head
    for link in chain.links:
        record = link.record
        is_checkpoint = isinstance(record, CheckpointRecord) and link.digest == head
        is_successor = isinstance(record, BeginRecord) and head and record.continues == head
        if (is_checkpoint or is_successor) and record.step == start:
            return link if progress.steps == start else None
    return None


def _config(options: ReplayOptions, begin: BeginRecord) -> RunConfig:
    """Return the recorded configuration with the options applied.

    Raises InputError if no run writes such a configuration, or it describes a model beyond all bounds.
    """
    path = options.run_dir / EVIDENCE_FILE
    try:
        recorded = msgspec.convert(begin.config, _Recorded)
        model = _model(begin.config["benchmark"]["model"])
        recorded = replace(recorded, benchmark=replace(recorded.benchmark, model=model))
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: configuration of attempt {begin.attempt!a:.40}: {error}") from error
    for name, bound in BOUNDS.items():
        value: Any = getattr(recorded.benchmark, name, None) or getattr(recorded.benchmark.model, name, 1)
        if not 1 <= value <= bound:
            raise InputError(f"{path}: {name} {value}: expected 1 to {bound:,}; no run of this benchmark has it")
    config = RunConfig(
        benchmark=recorded.benchmark,
        system=recorded.system if options.system is None else system_called(options.system, recorded.benchmark.name),
        precision=recorded.precision,
        deterministic=recorded.deterministic,
        data=DataOptions(
            train_data_path=options.train_data_path or recorded.train_data_path,
            valid_data_path=options.valid_data_path or recorded.valid_data_path,
            checkpoint=options.checkpoint or (Path(recorded.checkpoint) if recorded.checkpoint is not None else None),
            seed=recorded.seed,
        ),
    )
    config.require_fit()
    return config


def _model(recorded: dict[str, Any]) -> DecoderSizes:
    """Return the sizes as those of the architecture that has all these fields. Raises msgspec.ValidationError where
    there is none."""
    for kind in ARCHITECTURES:
        if recorded.keys() <= {field.name for field in fields(kind)}:
            return msgspec.convert(recorded, kind)
    raise msgspec.ValidationError(f"model: no architecture has just the sizes {', '.join(recorded)}"[:300])


def _other_inputs(data: DataOptions, link: Link, begin: BeginRecord) -> list[Fault]:
    """Return the inputs of the replay that differ from those of the run, as faults."""
    digests, faults = input_digests(input_identities(data)), []
    for name, recorded_input in begin.inputs.items():
        if name == "checkpoint" and name not in digests:
            continue  # not needed, or told when it is opened
        expected, actual = (
            value if isinstance(value, dict) else {"": value} for value in (recorded_input, digests.get(name))
        )
        for fact in expected:
            is_unknown = fact == "md5" and None in (expected[fact], actual.get(fact))
            if not is_unknown and expected[fact] != actual.get(fact):
                subject = f"{fact} of the input {name}".strip()
                faults.append(Fault(link.line, begin.step, subject, f"{expected[fact]}", f"{actual.get(fact)}"))
    return faults


def _why_not_exact(counting: Sequence[Link], start: int, last: int, replayed: Chain) -> str | None:
    """Describe a difference between the run's machinery and the replay's; None if the same bits are due."""
    replay_begin = replayed.links[0].record
    assert isinstance(replay_begin, BeginRecord)
    for position, link in enumerate(counting):
        run_begin = link.record
        end = next(
            (
                run_facts.record.step
                for run_facts in counting[position + 1 :]
                if isinstance(run_facts.record, BeginRecord)
            ),
            last,
        )
        if not isinstance(run_begin, BeginRecord) or end <= start or run_begin.step >= last:
            continue  # its steps are none of these
        run_facts, replay_facts = _machinery(run_begin), _machinery(replay_begin)
        for name in dict.fromkeys((*run_facts, *replay_facts)):
            if run_facts.get(name) != replay_facts.get(name):
                return f"{name} was {run_facts.get(name)!s:.60}, is {replay_facts.get(name)!s:.60}"
    return (
        None if replay_begin.kernels["deterministic"] else "kernels that do not repeat (--deterministic was not given)"
    )


def _machinery(begin: BeginRecord) -> dict[str, Any]:
    """Return the facts that must be equal for the same bits."""
    system = begin.config.get("system")
    return {name: system.get(name) if isinstance(system, dict) else None for name in LAYOUT} | begin.kernels


def _differences(saved: Link, counting: Sequence[Link], replayed: Chain, allowed: Mapping[str, float]) -> list[Fault]:
    """Compare the records of the run with those of its replay, and the fingerprints that the run saved with the loaded
    ones.

    No topology changes those fingerprints.
    """
    faults: list[Fault] = []
    loaded = replayed.links[0].record
    assert isinstance(loaded, BeginRecord)
    assert isinstance(saved.record, BeginRecord | CheckpointRecord)
    for name in ("weights", "moments"):
        expected, actual = getattr(saved.record, name), getattr(loaded, name)
        if expected != actual:
            faults.append(Fault(saved.line, saved.record.step, f"{name} of the checkpoint", expected, actual))
    exact = not any(allowed.values())
    for kind, names in COMPARED:
        replayed_records, run_records = by_step(replayed.links, kind), by_step(counting, kind)
        for step in sorted(replayed_records.keys() & run_records.keys()):
            link, recorded = run_records[step]
            for name in names if exact else (name for name in names if name != "weights"):
                expected, actual = getattr(recorded, name), getattr(replayed_records[step][1], name)
                if not _agrees(expected, actual, allowed.get(name, 0.0)):
                    faults.append(Fault(link.line, step, name.replace("_", " "), f"{expected}", f"{actual}"))
    return faults


def _agrees(actual: Any, expected: Any, allowed: float) -> bool:
    return bool(
        actual == expected
        or (allowed and None not in (actual, expected) and abs(actual - expected) <= allowed * abs(expected))
    )


def result_fields(result: ReplayResult) -> dict[str, Any]:
    """Return the result as JSON values for --json."""
    return {**asdict(result), "exact": result.start is not None and result.why_not_exact is None, "holds": result.holds}
