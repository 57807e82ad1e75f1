"""Commands about results: review, replay, report, results, describe-system, package."""

from dataclasses import dataclass
from pathlib import Path

from benchmark.config.field_checks import step_range
from benchmark.config.number_formats import Precision
from benchmark.config.runtime_variables import let_threads_sleep
from benchmark.config.systems import system_called
from benchmark.run_record.file_names import EVIDENCE_FILE
from foundation.errors import InputError
from foundation.options.option_marks import Positional


@dataclass(frozen=True)
class ReviewCommand:
    """Check whether logs and packages would be accepted, by the official checkers and rules of our own.

    Exit status 0 only if every check that applies really ran on every file and passed.

    Example: python -m benchmark review ACME --ruleset 4.1.0
    """

    paths: Positional[tuple[Path, ...]] = ()
    """Result files, folders of them, submission packages, or a folder of packages."""
    ruleset: str | None = None
    """Official ruleset, such as 4.1.0 or 6.1.0; by default that of the round in the path (v4.0), or else the newest
    that has the benchmark."""
    brief: bool = False
    """Print verdicts and errors alone, one line each."""
    json: Path | None = None
    """Write the whole review here as JSON."""
    custom_rcps: Path | None = None
    """Reference points (RCPs) to test against instead of the ruleset's: a file such as rcps_gpt3.json. Package checker
    and summarizer use the ruleset's."""
    full_rcps: bool = False
    """Test against all reference points, including those that are slower than their neighbours predict."""
    html: Path | None = None
    """Write a page here, as the command report does: for a round, a leaderboard."""
    previous: Path | None = None
    """With --html: another round, or an earlier version of this one; the page shows the changes since."""

    def run(self) -> int:
        from benchmark.judging.results.convergence import ReferenceChoice
        from benchmark.judging.review.review_screen import review_and_print

        page = None
        if self.html is not None:
            from benchmark.judging.report.write_report import page_writer

            page = page_writer(self.html, self.ruleset, self.previous)
        elif self.previous is not None:
            raise InputError("--previous is told on the page that --html writes: give both, or neither")
        references = ReferenceChoice(self.custom_rcps, not self.full_rcps)
        return review_and_print(self.paths, self.ruleset, self.json, page, references, self.brief)


@dataclass(frozen=True)
class ReplayCommand:
    """Train a stretch of a run again from its checkpoint, and compare it with the run's evidence record by record.
    Check that log and checkpoint are those of the evidence.

    Nothing in the folder is executed. The comparison is to the bit if layout, device and versions are the run's, else
    with tolerances.

    Example: python -m benchmark replay runs/rehearsal/run_0 --steps 176:192

    Exit status: 0 every link holds, 1 one does not (the lines say which), 2 bad input.
    """

    run_dir: Positional[Path]
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
        from benchmark.run_record.evidence_chain import require_chain

        step_range(self.steps)  # both are checked before the seconds that PyTorch takes to import
        require_chain(self.run_dir / EVIDENCE_FILE)
        if self.system is not None:
            system_called(self.system, "")
        let_threads_sleep()  # the run's system is known only after PyTorch is imported
        from benchmark.training.engine.distributed import end_process
        from benchmark.training.replay.replay_run import ReplayOptions, replay, result_fields
        from foundation.file_formats.json_files import as_json

        moved = (self.checkpoint, self.train_data_path, self.valid_data_path, self.log, self.system)
        result = replay(ReplayOptions(self.run_dir, self.steps, *moved))
        if result is not None:  # on rank 0
            print(as_json(result_fields(result)) if self.json else result.text())
        end_process(0 if result is None or result.holds else 1)


@dataclass(frozen=True)
class ReportCommand:
    """Write one self-contained HTML page about runs, packages or rounds. It has verdict and score of each system,
    accuracy, training, speed, use of time, origin, every finding of review; that of a round a leaderboard, even if a
    package is broken. Exit status 0 if the page is written, whatever the verdict.

    Example: python -m benchmark report runs/rehearsal/run_0 --output report.html
    """

    paths: Positional[tuple[Path, ...]]
    """Folders of runs or of results, result files, submission packages, or rounds; published ones, too."""
    output: Path
    """HTML file to write."""
    ruleset: str | None = None
    """Official ruleset to review by, such as 4.1.0 or 6.1.0; by default that of the round in the path, or else the
    newest that has the benchmark."""
    previous: Path | None = None
    """Another round, or an earlier version of this one; the page shows the changes since."""
    plan: Path | None = None
    """Output of plan --json, to show beside the measurements. By default plan.json in the run's folder."""

    def run(self) -> int:
        from benchmark.judging.report.write_report import write_report

        print(write_report(self.paths, self.output, self.ruleset, self.previous, self.plan))
        return 0


@dataclass(frozen=True)
class ResultsCommand:
    """Make a table of results, with a row per run, from runs, packages, rounds or folders of rounds. It holds data of
    logs, descriptions and the review. The systems are printed, the runs written. Exit status 0 whatever the verdicts.

    Example: python -m benchmark results training_results_v4.0 training_results_v4.1 --csv results.csv
    """

    paths: Positional[tuple[Path, ...]] = ()
    """Result files, folders of runs, submission packages, rounds, or folders of rounds."""
    csv: Path | None = None
    """Write the table here as CSV."""
    parquet: Path | None = None
    """Write the table here as Parquet; needs pyarrow (pip install pyarrow)."""
    ruleset: str | None = None
    """Official ruleset, such as 4.1.0 or 6.1.0; by default that of the round in the path (v4.0), or else the newest
    that has the benchmark."""

    def run(self) -> int:
        from benchmark.judging.report.results_table import tabulate_results

        return tabulate_results(self.paths, self.csv, self.parquet, self.ruleset)


@dataclass(frozen=True)
class DescribeSystemCommand:
    """Write an MLPerf system description of this machine. Fields that the machine does not tell are marked and listed;
    fill them in by hand: the command package refuses a description with marks.

    Example: python -m benchmark describe-system --output dgxh100_n64.json
    """

    output: Path | None = None
    """File to write; without it the description is printed. A .toml gets the hardware part of a system, for
    --system."""

    def run(self) -> int:
        if self.output is not None and self.output.exists():  # before the second that PyTorch takes to import
            raise InputError(f"{self.output}: exists, perhaps filled in by hand; choose another --output or delete it")
        from benchmark.planning.machine.describe_system import describe_system

        print(describe_system(self.output))
        return 0


@dataclass(frozen=True)
class PackageCommand:
    """Make a submission of a benchmark's results: system description, logs, code, scripts, manifests. If review would
    refuse it, the command prints a line for each reason and leaves nothing behind.

    Example: python -m benchmark package --org ACME --system-json dgxh100_n64.json --results runs/0 runs/1 runs/2
    --output ACME
    """

    org: str
    """The submitting organisation."""
    system_json: Path
    """Description of the system, begun by describe-system; its file name names the system."""
    results: tuple[Path, ...]
    """Result files, or folders of runs: three of gpt3, ten of llama31_8b."""
    output: Path
    """Folder to make."""
    ruleset: str | None = None
    """Official ruleset, such as 4.1.0; by default the newest that has the benchmark."""
    precision: Precision | None = None
    """Precision of the runs' computation. Needed only for logs outside of their runs' folders, whose config.json has
    it."""
    other_code: bool = False
    """State in the package that the results were made by other code than this repository's."""

    def run(self) -> int:
        from benchmark.judging.submission.package import make_package

        _, summary = make_package(
            self.org,
            self.system_json,
            self.results,
            self.output,
            ruleset=self.ruleset,
            precision=self.precision,
            other_code=self.other_code,
        )
        print(summary)
        return 0
