"""The columns of the table of runs: what a log, its system's description and its score say, as data.

Names are stable: columns are added, never renamed. docs/results.md lists them all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.results.run_summary import RunSummary
from benchmark.results.score import RunScore, Score
from benchmark.results.subjects import ResultSet
from model.flops import train_flops_per_token

PUBLISHED_RUNS = Path(__file__).with_name("published_runs.csv")
"""The table of runs of rounds 3.0 to 4.1, as ``python -m benchmark.results.write_published`` makes it."""


@dataclass(frozen=True)
class RunFacts:
    """One run, with the set that it belongs to."""

    of: ResultSet
    system: Score
    summary: RunSummary
    scored: RunScore

    @property
    def described(self) -> Mapping[str, Any]:
        """The system description; empty where there is none."""
        return {} if self.of.system is None else self.of.system.content

    @property
    def tokens_per_s_per_accelerator(self) -> float | None:
        count = self.system.accelerators
        return self.summary.tokens_per_s / count if self.summary.tokens_per_s is not None and count else None

    @property
    def mfu(self) -> float | None:
        """Model FLOP/s of the training tokens over the whole run, as a share of the dense BF16 peak."""
        speed, peak = self.tokens_per_s_per_accelerator, self.system.peak_tflops
        if speed is None or not peak:
            return None
        return speed * train_flops_per_token(self.of.judged.benchmark.model) / 1e12 / peak


@dataclass(frozen=True)
class Column:
    """One column of a table: its name, its pandas type, what it means (with the unit), and a row's value."""

    name: str
    dtype: str
    """string, Int64, Float64 or datetime64[ms, UTC]; a value of another kind is missing."""
    meaning: str
    value: Callable[[RunFacts], Any]


TIME = "datetime64[ms, UTC]"
RUN_COLUMNS = (
    Column("round", "string", "whose rules judge it: 3.0, 3.1, 4.0 or 4.1",
           lambda run: run.of.ruleset.rpartition(".")[0]),
    Column("package", "string", "folder of the submission package", lambda run: run.of.package),
    Column("system_folder", "string", "folder of the system's results, or what tells loose runs apart",
           lambda run: run.of.name),
    Column("file", "string", "name of the result file", lambda run: run.summary.log.path.name),
    Column("submitter", "string", "of the system description, else of the log",
           lambda run: run.described.get("submitter") or run.summary.org),
    Column("division", "string", "of the system description, else of the log",
           lambda run: run.described.get("division") or run.summary.division),
    Column("availability", "string", "status of the system description, else of the log",
           lambda run: run.described.get("status") or run.summary.log.text("submission_status")),
    Column("accelerator_model_name", "string", "by the description or config.json", lambda run: run.system.accelerator),
    Column("accelerators_count", "Int64", "accelerators of all nodes", lambda run: run.system.accelerators),
    Column("framework", "string", "of the system description", lambda run: run.described.get("framework")),
    Column("submission_benchmark", "string", "gpt3 or gpt3_rehearsal", lambda run: run.summary.benchmark),
    Column("seed", "Int64", "of the log", lambda run: run.scored.seed),
    Column("submission_org", "string", "of the log", lambda run: run.summary.org),
    Column("submission_platform", "string", "of the log", lambda run: run.summary.platform),
    Column("global_batch_size", "Int64", "samples of a step", lambda run: run.summary.global_batch_size),
    Column("run_started", TIME, "run_start, UTC", lambda run: run.summary.run_start_ms),
    Column("status", "string", "of run_stop: success or aborted", lambda run: run.summary.status),
    Column("minutes", "Float64", "run_start to run_stop, minutes", lambda run: run.summary.minutes),
    Column("init_s", "Float64", "first init_start to init_stop, seconds; not timed", lambda run: run.summary.init_s),
    Column("tokens", "Float64", "trained since the initial checkpoint", lambda run: run.summary.trained_tokens),
    Column("evaluations", "Int64", "how many", lambda run: run.scored.evaluations),
    Column("evaluation_tokens", "string", "tokens at each evaluation, separated by spaces",
           lambda run: _series([one.tokens for one in run.summary.evaluations])),
    Column("evaluation_values", "string", "log perplexity at each evaluation, separated by spaces",
           lambda run: _series([one.log_perplexity for one in run.summary.evaluations])),
    Column("evaluation_ms", "string", "milliseconds from run_start to each evaluation, separated by spaces",
           lambda run: _series([one.time_ms - (run.summary.run_start_ms or 0) for one in run.summary.evaluations])),
    Column("last_log_perplexity", "Float64", "nats per token", lambda run: run.scored.last_log_perplexity),
    Column("tokens_per_s_per_accelerator", "Float64", "over the whole run",
           lambda run: run.tokens_per_s_per_accelerator),
    Column("mfu", "Float64", "over the whole run, of the dense BF16 peak, whatever the precision",
           lambda run: run.mfu),
    Column("restarts", "Int64", "from checkpoints of the run", lambda run: run.scored.restarts),
    Column("measured_minutes", "Float64", "of the system: the middle of three times",
           lambda run: run.system.measured_minutes),
    Column("scaling_factor", "Float64", "of the system: of scaling.json; outside of packages by the reference points",
           lambda run: run.system.factor),
    Column("score_minutes", "Float64", "of the system: measured_minutes times scaling_factor",
           lambda run: run.system.minutes),
    Column("convergence", "string", "of the system: how it stands against the reference points",
           lambda run: run.of.convergence.standing),
)  # fmt: skip
RUN_TYPES = {column.name: column.dtype for column in RUN_COLUMNS}


def _series(values: Sequence[float | None]) -> str | None:
    """Numbers separated by spaces, with a dash for one that is not there."""
    return " ".join("-" if value is None else f"{value:.10g}" for value in values) or None
