"""The rehearsal: every stage of the benchmark, by the same commands, at a size for this machine."""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.field_checks import require_seed
from benchmark.config.number_formats import DEFAULT_PRECISION, NUMBER_FORMATS, Precision
from benchmark.config.systems import DEFAULT_SYSTEM, SYSTEMS
from benchmark.judging.review.verdict import Review, SubjectReview, review
from benchmark.launch.one_machine import run_here
from benchmark.run_record.checkpoint_list import whole_checkpoints
from benchmark.run_record.file_names import result_path, summary_path
from data_prep.token_files.indexed_dataset import IndexedDataset
from foundation.child_processes import require_free_port, require_loopback, run_module
from foundation.errors import InputError
from foundation.git import REPOSITORY
from foundation.outputs.lock import only_one_in
from foundation.plain_text import counted, folded

CORPUS_SEED = 1
CHECKPOINT_SEED = 1
CHECKPOINT_PAXML, CHECKPOINT_MEGATRON = "checkpoint_paxml", "checkpoint_megatron_bf16"
MOST_SHARDS = 8
"""Most shards taken from C4_PATH: enough for a rehearsal."""
TOKENIZER_DOCUMENTS = 20_000
EVALUATIONS_WITHOUT_TARGET = 16
"""Evaluations of a run on other text, for which no target is known."""


class StageFailed(Exception):
    """A stage ended with another exit status than 0, after printing the reason."""

    def __init__(self, title: str, status: int) -> None:
        super().__init__(f"stopped at {title!r}")
        self.status = status


def rehearse(
    benchmark: Benchmark,
    work_dir: Path,
    *,
    c4_path: Path | None = None,
    seed: int | None = None,
    master_port: int | None = None,
    precision: Precision = "bf16",
) -> int:
    """Run every stage of a small benchmark; return the exit status of the failed stage, or 0 for a pass.

    Valid outputs in ``work_dir`` are used again; a killed run is continued, and otherwise a new one is begun.
    ``c4_path``: real text instead of the generated one. ``seed`` of the data order and ``master_port`` are drawn unless
    given. ``precision``: number format of the run. Raises InputError before any stage if there is no such text, the
    folder is in use, or the run would refuse seed or port.
    """
    if seed is not None:
        require_seed(seed)
    require_loopback()
    if master_port is not None:
        require_free_port(master_port)
    work, printed_work = work_dir.resolve(), work_dir
    if c4_path is not None:
        _find_c4(c4_path)
        name = hashlib.md5(bytes(c4_path.resolve()), usedforsecurity=False).hexdigest()[:8]
        work = work.with_name(f"{work.name}-c4-{name}")
        printed_work = work_dir.with_name(work.name) if work_dir.name not in ("", "..") else work
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--work-dir {work_dir}: {error.strerror}; choose another WORK_DIR") from error
    try:
        with only_one_in(work, "choose another WORK_DIR"):
            return _Rehearsal(benchmark, work, printed_work, c4_path, seed, master_port, precision).run()
    except StageFailed as failure:
        print(f"\nrehearsal {failure}; its files are in {work}")
        return failure.status


class _Rehearsal:
    """One rehearsal. Each stage is a command that does nothing when its output exists and is valid."""

    def __init__(
        self,
        benchmark: Benchmark,
        work: Path,
        printed_work: Path,
        c4_path: Path | None = None,
        seed: int | None = None,
        master_port: int | None = None,
        precision: Precision = "bf16",
    ) -> None:
        """``printed_work``: the folder ``work`` in the form in which the user named it, for printed commands."""
        self.benchmark, self.work, self.printed_work = benchmark, work, printed_work
        self.c4_path, self.seed, self.master_port, self.precision = c4_path, seed, master_port, precision
        self.validation = work / "dataset" / benchmark.token_files.validation
        self.seconds: dict[str, float] = {}

    def run(self) -> int:
        train_sets = self._prepare_data()
        checkpoint = self._prepare_checkpoint() if self.benchmark.start_iterations else None
        run_dir, number = self._next_run()
        status = self._timed_run(run_dir, number, train_sets, checkpoint)
        summary = json.loads(summary_path(run_dir).read_text())
        verdict = None
        if self.c4_path is None:
            with self._stage("review"):
                result = result_path(run_dir, number)
                self._show("python", "-m", "benchmark", "review", str(result))
                verdict = review([result])
        self._replay(run_dir, summary)
        self._command("report", "benchmark", "report", run_dir, "--output", run_dir / "report.html")
        self._last_screen(summary, verdict, run_dir)
        return status or (0 if verdict is None or verdict.passed else 1)

    def _prepare_data(self) -> list[Path]:
        """Make corpus, tokenizer and token files; return the training prefixes."""
        if self.c4_path is None:
            corpus = self.work / "corpus"
            self._command("corpus", "data_prep", "synthetic-corpus", "--output", corpus, "--seed", CORPUS_SEED)
        else:
            corpus = self.c4_path.resolve()
        shards, validation = _find_c4(corpus)
        tokenizer = self.work / "tokenizer" / "sentencepiece.model"
        vocabulary = ["--vocab-size", self.benchmark.model.vocab_size, "--documents", TOKENIZER_DOCUMENTS]
        self._command(
            "tokenizer", "data_prep", "train-tokenizer", "--input", *shards, "--output", tokenizer, *vocabulary
        )
        half = (len(shards) + 1) // 2
        names, train_sets = self.benchmark.token_files, []
        for name, files in zip(
            (*names.training, names.validation), (shards[:half], shards[half:], validation), strict=True
        ):
            prefix = self.work / "dataset" / name
            if files:  # one shard alone makes one training set
                inputs = ["--input", *files, "--tokenizer", tokenizer, "--output-prefix", prefix]
                self._command("tokenise", "data_prep", "preprocess", *inputs)
                train_sets.append(prefix)
        if self.c4_path is None:
            self._verify("dataset", REPOSITORY / "checksums" / "rehearsal_dataset.md5")
        return train_sets[:-1]

    def _prepare_checkpoint(self) -> Path:
        """Make the initial checkpoint in PAXML's layout, convert it and verify the result."""
        sizes, paxml, megatron = self.benchmark.model, self.work / CHECKPOINT_PAXML, self.work / CHECKPOINT_MEGATRON
        options = ["--layers", sizes.num_layers, "--hidden", sizes.hidden_size, "--heads", sizes.num_attention_heads]
        options += ["--vocab", sizes.padded_vocab_size, "--positions", asdict(sizes)["max_position_embeddings"]]
        self._command(
            "checkpoint", "checkpoint_convert", "random-paxml", "--output", paxml, "--seed", CHECKPOINT_SEED, *options
        )
        conversion = ["--input", paxml, "--output", megatron, "--dtype", "bf16"]
        self._command("convert", "checkpoint_convert", "paxml-to-megatron", *conversion)
        self._verify(megatron.name, REPOSITORY / "checksums" / "rehearsal_checkpoint_bf16.md5")
        return megatron

    def _next_run(self) -> tuple[Path, int]:
        """Return the first run folder without a finished run, and its number: an interrupted run is continued."""
        number = 0
        while summary_path(self.work / f"run_{number}").exists():
            number += 1
        return self.work / f"run_{number}", number

    def _timed_run(self, run_dir: Path, number: int, train_sets: Sequence[Path], checkpoint: Path | None) -> int:
        benchmark = self.benchmark
        share = 1 / len(train_sets)
        arguments: list[Any] = ["train", benchmark.name, "--result-number", number]
        arguments += ["--train-data-path", *(word for prefix in train_sets for word in (share, prefix))]
        arguments += ["--valid-data-path", "1.00", self.validation]
        if checkpoint is not None:
            arguments += ["--checkpoint", checkpoint]
        arguments += ["--log-interval", benchmark.eval_interval // 2]
        arguments += ["--save-interval", benchmark.eval_interval, "--evidence"]
        if self.precision != DEFAULT_PRECISION:
            arguments += ["--precision", self.precision]
        if self.seed is not None:
            arguments += ["--seed", self.seed]
        if self.c4_path is not None:
            samples = benchmark.start_samples + EVALUATIONS_WITHOUT_TARGET * benchmark.eval_interval_samples
            arguments += ["--target-log-perplexity", "None", "--train-samples", samples]
        words, processes = (
            [str(argument) for argument in arguments],
            SYSTEMS[DEFAULT_SYSTEM[benchmark.name]].num_devices,
        )
        with self._stage("timed run"):
            where = ["--processes", str(processes), "--run-dir", str(run_dir)]
            self._show("python", "-m", "benchmark.launch", *where, "--", *words)
            decision = run_here(run_dir, words, processes=processes, port=self.master_port)
        if decision.action != "done":
            raise StageFailed("timed run", decision.status)
        return decision.status

    def _replay(self, run_dir: Path, summary: dict[str, Any]) -> None:
        """Train the last steps again, from the last checkpoint before them."""
        last = summary["trained_samples"] // self.benchmark.global_batch_size
        start = max((steps for steps in whole_checkpoints(run_dir) if steps < last), default=0)
        self._command("replay", "benchmark", "replay", run_dir, "--steps", f"{start}:{last}")

    def _command(self, title: str, *arguments: object) -> None:
        words = [str(argument) for argument in arguments]
        with self._stage(title):
            self._show("python", "-m", *words)
            status = run_module(words)
        if status:
            raise StageFailed(title, status)

    def _show(self, *words: str) -> None:
        """Print a command, with short paths and shortened lists of files."""
        printed: list[str] = []
        for word in words:
            word = word.replace(f"{self.work}/", f"{self.printed_work}/").replace(f"{REPOSITORY}/", "")
            same_kind = len(printed) > 1 and Path(word).suffix == ".gz" == Path(printed[-1]).suffix
            if same_kind and printed[-2] == "...":
                printed[-1] = word
            else:
                printed += ["...", word] if same_kind else [word]
        print(f"  {' '.join(printed)}", flush=True)

    def _verify(self, name: str, manifest: Path) -> None:
        self._command("verify", "checksums", "verify", self.work / name, "--manifest", manifest)

    @contextmanager
    def _stage(self, title: str) -> Iterator[None]:
        print(f"\n=== {title} ===", flush=True)
        started = time.perf_counter()
        yield
        self.seconds[title] = self.seconds.get(title, 0.0) + time.perf_counter() - started

    def _inputs(self) -> list[str]:
        """Return the folders made by the stages before the run, in their order."""
        names = ("corpus", "tokenizer", "dataset", CHECKPOINT_PAXML, CHECKPOINT_MEGATRON)
        return [name for name in names if (self.work / name).is_dir()]

    def _last_screen(self, summary: dict[str, Any], verdict: Review | None, run_dir: Path) -> None:
        target = self.benchmark.target_log_perplexity if self.c4_path is None else None
        met = summary["status"] == "success" and target is not None
        reached = f"target {target} reached" if met else "trained" if target is None else summary["status"]
        subject = None if verdict is None else verdict.subjects[0]
        minutes = None if subject is None else subject.runs[0].minutes  # as the report says it
        seconds = summary["run_s"] if minutes is None else 60 * minutes
        perplexities = [evaluation["log_perplexity"] for evaluation in summary["evaluations"]]
        entropy = unigram_entropy(self.validation)
        speed = f"{summary['tokens_per_s']:,.0f} tokens/s in {NUMBER_FORMATS[self.precision].title}"
        lines = {
            "evaluations": f"{len(perplexities)}: {' '.join(f'{value:.3f}' for value in perplexities)}",
            "log perplexity": f"{perplexities[-1]:.4f} (unigram entropy of the validation tokens: {entropy:.4f})",
            "throughput": f"{speed}, evaluations and checkpoints included",
            "first loss": f"{summary['first_loss_s']:.1f} s after the processes started",
            "seed": f"{summary['seed']}, {counted(summary['restarts'], 'restart')}",
            "review": "not judged: no target for this text" if subject is None else _words_for(subject),
            "stages": ", ".join(f"{title} {seconds:.1f} s" for title, seconds in self.seconds.items()),
            "run": f"{run_dir}: {', '.join(sorted(path.name for path in run_dir.iterdir() if path.is_file()))}",
            "inputs": f"{self.work}: {', '.join(self._inputs())}, each with its manifest",
        }
        print(
            f"\n=== {reached} after {summary['trained_tokens']:,} tokens ({summary['trained_samples']:,} samples) "
            f"in {seconds:.1f} s ==="
        )
        for title, text in lines.items():
            print(folded(f"  {title:15} {text}"))


def _words_for(subject: SubjectReview) -> str:
    tools = ", ".join(f"{check.tool} {check.outcome}" for check in subject.checks)
    errors, warnings = subject.of("error"), subject.of("warning")
    findings = f"{counted(len(errors), 'error')} and {counted(len(warnings), 'warning')} of our own rules"
    reasons = "".join(
        f"; {finding.severity}: {finding.observed}, expected: {finding.expected}" for finding in (*errors, *warnings)
    )
    return f"{'PASS' if subject.passed else 'FAIL'} (official: {tools}, ruleset {subject.ruleset}; {findings}){reasons}"


def unigram_entropy(prefix: Path) -> float:
    """Return the entropy in nats of the tokens' frequencies: the loss of a model that only counts tokens."""
    dataset = IndexedDataset(prefix)
    counts = np.bincount(np.concatenate([dataset.tokens(i, 0, int(size)) for i, size in enumerate(dataset.sizes[:])]))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _find_c4(corpus: Path) -> tuple[list[Path], list[Path]]:
    shards = sorted(corpus.glob("en/c4-train.*.json.gz"))[:MOST_SHARDS]
    validation = sorted(corpus.glob("c4-validation*.json"))
    if not shards or not validation:
        raise InputError(f"--c4-path {corpus}: expected en/c4-train.*.json.gz and c4-validation*.json in it")
    return shards, validation
