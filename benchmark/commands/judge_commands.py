"""Commands about results: review, report, results, describe-system, package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from benchmark.results.subjects import NEWEST_RULESET
from stage.errors import InputError


@dataclass(frozen=True)
class ReviewCommand:
    """Whether results would be accepted: the official checkers, and rules of our own, on logs and packages.

    Exit status 0 only if every check that applies really ran on every file and passed.

    Example: python -m benchmark review ACME --ruleset 4.1.0
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Result files, folders of them, submission packages, or a folder of packages."""
    ruleset: str | None = None
    """3.0.0, 3.1.0, 4.0.0 or 4.1.0; by default that of the round in the path (v4.0), or the newest."""
    json: Path | None = None
    """Write the whole review here as JSON."""
    custom_rcps: Path | None = None
    """Reference points (RCPs) to test against instead of the ruleset's: a file such as rcps_gpt3.json. Package checker
    and summarizer keep to the ruleset's."""
    full_rcps: bool = False
    """Test against all reference points, those too that are slower than their neighbours say."""
    html: Path | None = None
    """Write a page here, as report does: for a round, a leaderboard."""
    previous: Path | None = None
    """With --html: another round, or an earlier version of this one; show what changed since."""

    def run(self) -> int:
        from benchmark.results.convergence import ReferenceChoice
        from benchmark.review.review_and_print import review_and_print

        page = None
        if self.html is not None:
            from benchmark.report.write_report import ReportOptions, review_page

            page = review_page(self.html, ReportOptions(self.ruleset, self.previous))
        elif self.previous is not None:
            raise InputError("--previous is told on the page that --html writes: give both, or neither")
        references = ReferenceChoice(self.custom_rcps, not self.full_rcps)
        return review_and_print(self.paths, self.ruleset, self.json, page, references)


@dataclass(frozen=True)
class ReportCommand:
    """Write one self-contained HTML page about runs, packages or rounds: verdict and score of each system, accuracy,
    training, speed, where the time went, origin, every finding of review. A round has a leaderboard, which a broken
    package does not end. Exit status 0 if it is written, whatever the verdict.

    Example: python -m benchmark report runs/rehearsal/run_0 --output report.html
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs or of results, result files, submission packages, rounds; published ones, too."""
    output: Path
    """HTML file to write."""
    ruleset: str | None = None
    """Official ruleset to review by: 3.0.0, 3.1.0, 4.0.0 or 4.1.0; by the path, else the newest, unless given."""
    previous: Path | None = None
    """Another round, or an earlier version of this one: show what changed since."""
    plan: Path | None = None
    """What plan --json printed: put it beside what the run measured. By default plan.json in the run's folder."""

    def run(self) -> int:
        from benchmark.report.write_report import ReportOptions, write_report

        print(write_report(self.paths, self.output, ReportOptions(self.ruleset, self.previous, self.plan)))
        return 0


@dataclass(frozen=True)
class ResultsCommand:
    """Make a table of results, a row per run, of runs, packages, rounds or folders of rounds, with what logs,
    descriptions and the review say. Prints the systems; writes the runs. Exit status 0 whatever the verdicts.

    Example: python -m benchmark results training_results_v4.0 training_results_v4.1 --csv results.csv
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Result files, folders of runs, submission packages, rounds, or folders of rounds."""
    csv: Path | None = None
    """Write the table here as CSV."""
    parquet: Path | None = None
    """Write it here as Parquet; pip install pyarrow."""
    ruleset: str | None = None
    """3.0.0, 3.1.0, 4.0.0 or 4.1.0; by default that of the round in the path (v4.0), or the newest."""

    def run(self) -> int:
        from benchmark.report.results_table import tabulate_results

        return tabulate_results(self.paths, self.csv, self.parquet, self.ruleset)


@dataclass(frozen=True)
class DescribeSystemCommand:
    """Read this machine into an MLPerf system description. Fields that it cannot tell are marked and listed; fill
    them in by hand: package refuses a description with marks.

    Example: python -m benchmark describe-system --output dgxh100_n64.json
    """

    output: Path | None = None
    """File to write; printed unless given. A .toml gets the hardware part of a system, for --system."""

    def run(self) -> int:
        from benchmark.submission.describe_system import describe_system

        print(describe_system(self.output))
        return 0


@dataclass(frozen=True)
class PackageCommand:
    """Make a submission of three results: system description, logs, code, scripts, manifests. What review would
    refuse is refused, in a line each, and nothing is left behind.

    Example: python -m benchmark package --org ACME --system-json dgxh100_n64.json --results runs/0 runs/1 runs/2
    --output ACME
    """

    org: str
    """The submitting organisation."""
    system_json: Path
    """Description of the system, as describe-system begins it; its file name names the system."""
    results: tuple[Path, ...]
    """Three result files, or folders of runs."""
    output: Path
    """Folder to make."""
    ruleset: str = NEWEST_RULESET
    """Official ruleset: 3.0.0, 3.1.0, 4.0.0 or 4.1.0."""
    precision: Literal["fp32", "bf16"] | None = None
    """What the runs computed in. Needed only for logs outside of the folders of their runs, where config.json tells."""
    other_code: bool = False
    """Other code than this repository's made the results; the package says so."""

    def run(self) -> int:
        from benchmark.submission.package import PackageOptions, make_package

        options = PackageOptions(self.ruleset, self.precision, self.other_code)
        print(make_package(self.org, self.system_json, self.results, self.output, options))
        return 0
