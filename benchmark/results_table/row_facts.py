"""What the columns of the results table are made from: one system as reviewed, and one of its runs."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.results.result_log import as_number
from benchmark.results.run_summary import RunSummary
from benchmark.results.score import RunScore, Score, middle_run
from benchmark.results.subjects import ResultSet
from benchmark.review.findings import Finding, Severity
from benchmark.review.verdict import SubjectReview
from model.flops import train_flops_per_token


@dataclass(frozen=True)
class SystemFacts:
    """One system of a package, or loose runs that belong together."""

    subject: SubjectReview
    result_set: ResultSet
    score: Score

    @property
    def round(self) -> str:
        """The round whose rules it is judged by, such as 4.1."""
        return self.result_set.ruleset.rpartition(".")[0]

    @property
    def package(self) -> str | None:
        return Path(self.subject.path).name if self.subject.kind == "package" else None

    @property
    def described(self) -> Mapping[str, Any]:
        """The system description; empty where there is none."""
        return {} if self.result_set.system is None else self.result_set.system.content

    @property
    def description_counts(self) -> tuple[int | None, int | None]:
        """Nodes, and accelerators of a node."""
        system = self.result_set.system
        return (
            (None, None) if system is None else (system.count("number_of_nodes"), system.count("accelerators_per_node"))
        )

    @property
    def host_processors(self) -> int | None:
        """Of all nodes, as the official summarizer counts them."""
        system = self.result_set.system
        if system is None:
            return None
        nodes, each = system.count("number_of_nodes"), system.count("host_processors_per_node")
        return None if nodes is None or each is None else nodes * each

    @property
    def official(self) -> Mapping[str, float | str]:
        """What the official summarizer says of it, by its columns without the benchmark's name."""
        return next(
            (one.scores[self.result_set.name] for one in self.subject.checks if self.result_set.name in one.scores), {}
        )

    @property
    def runs(self) -> Sequence["RunFacts"]:
        return [
            RunFacts(self, summary, scored)
            for summary, scored in zip(self.result_set.runs, self.score.runs, strict=True)
        ]

    @property
    def middle(self) -> RunSummary | None:
        """The run whose time is the middle one."""
        return middle_run(self.result_set.runs)

    def findings(self, severity: Severity) -> list[Finding]:
        """What was found in its runs, its folder and its description."""
        return [one for one in self.subject.of(severity) if self._is_mine(one)]

    def _is_mine(self, finding: Finding) -> bool:
        if self.subject.kind == "runs":
            return True
        found = Path(finding.path)
        folder, description = self.result_set.folder, self.result_set.system_path
        inside = folder is not None and (found == folder or folder in found.parents or found == folder.parent)
        return inside or (description is not None and found == description)


@dataclass(frozen=True)
class RunFacts:
    """One run of a system."""

    system: SystemFacts
    summary: RunSummary
    scored: RunScore

    @property
    def tokens_per_s_per_accelerator(self) -> float | None:
        count = self.system.score.accelerators
        return self.summary.tokens_per_s / count if self.summary.tokens_per_s is not None and count else None

    @property
    def tflops_per_accelerator(self) -> float | None:
        """Model TFLOP/s, training tokens only, over the whole run."""
        speed = self.tokens_per_s_per_accelerator
        return None if speed is None else speed * train_flops_per_token(self._model) / 1e12

    @property
    def mfu(self) -> float | None:
        tflops, peak = self.tflops_per_accelerator, self.system.score.peak_tflops
        return None if tflops is None or not peak else tflops / peak

    @property
    def _model(self) -> Any:
        return self.system.result_set.judged.benchmark.model

    @property
    def validation_step_s(self) -> float | None:
        """Median seconds of an evaluation, where the log has their start and stop."""
        seconds = [one.seconds for one in self.summary.evaluations if one.seconds is not None]
        return statistics.median(seconds) if seconds else None

    def findings(self, severity: Severity) -> list[Finding]:
        """What was found in this file."""
        path = str(self.summary.log.path)
        return [
            one for one in self.system.subject.of(severity) if any(_in(place, path) for place in (one.place, *one.also))
        ]


def _in(place: str, path: str) -> bool:
    """Whether ``place``, a path that a line may follow, is in a file."""
    return place == path or place.startswith(f"{path}:")


def scalars(run: RunFacts, leave_out: Sequence[str]) -> dict[str, str | float | bool]:
    """First value of every key of the log whose value is a text, a number or a truth."""
    found: dict[str, str | float | bool] = {}
    for event in run.summary.log.events:
        value = event.value if isinstance(event.value, str | bool) else as_number(event.value)
        if value is not None and event.key not in leave_out:
            found.setdefault(event.key, value)
    return found
