"""Write the documents of a package that are not copied: README, scripts, the description of the implementation."""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

import checksums
from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from benchmark.config.system_config import SUFFIX, System, system_text
from benchmark.judging.results.judged import Judged
from benchmark.judging.results.recorded_run import RecordedRun, settings
from benchmark.run_record.file_names import CONFIG_FILE, result_name
from foundation.errors import InputError
from foundation.file_formats.md5_list import read_list

SCRIPTS = ("setup.sh", "init_datasets.sh", "run_and_time.sh")
NOT_PLAIN = r"[^A-Za-z0-9_-]"
PUBLISHED_DATA: Mapping[str, str] = read_list(Path(checksums.__path__[0]) / "dataset_checksum.log")
"""MD5 of preprocessed files by name, as far as MLCommons published them."""


@dataclass(frozen=True)
class Prepared:
    """The name of a benchmark for a reader of the package, and the files that its ``init_datasets.sh`` makes."""

    title: str
    tokens: str
    """Folder of the token files in C4_FOLDER."""
    data: str
    """Template of the commands that make it."""
    checkpoint: str = ""
    """Folder of the initial checkpoint in C4_FOLDER, ``DTYPE`` in the place of its type; empty without one."""


PREPARED = {
    "gpt3": Prepared("GPT-3 175B", "preprocessed_c4_spm", "gpt3_data.sh.j2", "ckpt4000_DTYPE"),
    "llama31_8b": Prepared("Llama 3.1 8B", "preprocessed_c4_llama31", "llama31_data.sh.j2"),
    "gpt3_rehearsal": Prepared("GPT-3, a rehearsal", "dataset", "rehearsal_data.sh.j2", "checkpoint_megatron_bf16"),
    "llama31_rehearsal": Prepared("Llama 3.1, a rehearsal", "dataset", "rehearsal_data.sh.j2"),
}
"""By the name in logs."""


@dataclass(frozen=True)
class Contents:
    """Facts for the documents of a package."""

    org: str
    benchmark: Benchmark
    """The benchmark as it is trained."""
    judged: Judged
    """The benchmark as it is judged."""
    implementation: str
    """Folder of the code."""
    commit: str | None
    """Commit of the code."""
    description: Mapping[str, Any]
    """Description of the system."""
    results: Sequence[RecordedRun]
    precision: Precision
    """Precision of the runs."""
    other_code: bool
    """True if code other than this repository's made the results."""


def write_documents(folder: Path, contents: Contents, manifests: Sequence[str]) -> None:
    """Write README.md and the scripts of one system, and the system itself where the runs' configurations have it.

    Texts from logs and JSON are quoted as Markdown or shell requires.
    """
    first_result, templates, claims = contents.results[0], _templates(), claims_of(contents.benchmark, contents.results)
    system = _system(first_result)
    system_file = None if system is None else f"{re.sub(NOT_PLAIN, '_', system.name)}{SUFFIX}"
    if system is not None and system_file is not None:
        (folder / system_file).write_text(system_text(system), encoding="utf-8")
    prepared, dtype = PREPARED[contents.judged.name], NUMBER_FORMATS[contents.precision].checkpoint
    content = {
        **vars(contents),
        **vars(prepared),
        "checkpoint": prepared.checkpoint.replace("DTYPE", dtype),
        "dtype": dtype,
        "has_checkpoint": contents.benchmark.start_iterations > 0,
        "config_filename": CONFIG_FILE,
        "system_file": system_file,
        "system_name": contents.description.get("system_name", ""),
        "settings": settings(first_result),
        "runs": [_run(result, number, contents.judged) for number, result in enumerate(contents.results)],
        "claims": [claim.sentence for claim in claims if claim.supported],
        "untold": [claim.topic for claim in claims if not claim.supported],
        "manifests": manifests,
        "environment": first_result.environment,
        "variables": _variables(first_result, contents),
        "sbatch": _sbatch(contents.description),
    }
    for name in ("README.md", *SCRIPTS):
        path = folder / name
        path.write_text(templates.get_template(f"{name}.j2").render(content), encoding="utf-8")
        if name in SCRIPTS:
            path.chmod(0o755)


@dataclass(frozen=True)
class Claim:
    """A claim about data or checkpoint that no review checks. The README names topics of unsupported claims as such."""

    topic: str
    sentence: str
    supported: bool
    """True if every run recorded the digests that the sentence names."""


def claims_of(benchmark: Benchmark, runs: Sequence[RecordedRun]) -> list[Claim]:
    """Return the claims that a package of these runs could make: each dataset has the digests that MLCommons published,
    or any where none are public, and the checkpoint, an input that is no data file, has one."""
    files, ends, claims = benchmark.token_files, (".bin", ".idx"), []
    for kind, datasets in (("training", files.training), ("validation", (files.validation,))):
        names = [f"{name}{end}" for name in datasets for end in ends]
        public = PUBLISHED_DATA.keys() >= {*names}
        expected = (
            "with the digests that MLCommons published for them" if public else "named by their digests in `manifests/`"
        )
        sentence = f"{kind.capitalize()} data: {', '.join(f'{name}.bin' for name in datasets)}, {expected}."
        digests = [(name, run.digests.get(name)) for run in runs for name in names]
        holds = all(PUBLISHED_DATA[name] == md5 if public else md5 is not None for name, md5 in digests)
        claims.append(Claim(f"the {kind} data", sentence, holds))
    if benchmark.start_iterations:
        stamped = [[md5 for name, md5 in run.digests.items() if not name.endswith(ends)] for run in runs]
        sentence = "The initial checkpoint is named by its digest in `manifests/`."
        holds = all(any(md5 is not None for md5 in digests) for digests in stamped)
        claims.append(Claim("the digests of the initial checkpoint", sentence, holds))
    return claims


def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=False,  # Markdown and shell have their filters
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(md=_markdown, sh=lambda value: shlex.quote(str(value)), comment=_one_line)
    return environment


def _run(result: RecordedRun, number: int, judged: Judged) -> list[str]:
    summary = result.summary
    values = [evaluation.log_perplexity for evaluation in summary.evaluations]
    return [
        result_name(number),
        ", ".join(map(str, summary.seeds)),
        "-" if summary.minutes is None else f"{summary.minutes:.2f}",
        "-" if summary.trained_tokens is None else judged.count(summary.trained_tokens),
        str(len(values)),
        "-" if not values or values[-1] is None else f"{values[-1]:.5f}",
    ]


def _system(result: RecordedRun) -> System | None:
    """Return the system of a run; None for a log outside its run folder."""
    try:
        system = result.config.get("system")
        return None if system is None else msgspec.convert(system, System)
    except (ValueError, InputError) as error:
        path = result.path.with_name(CONFIG_FILE)
        raise InputError(f"{path}: no system in it ({error}); package with the version that made the run") from None


def _variables(result: RecordedRun, contents: Contents) -> dict[str, Any]:
    """Return the environment with which run_gpt3.sh repeats such a run."""
    log, benchmark = result.summary.log, contents.benchmark
    size, rate = log.number("global_batch_size"), log.number("opt_base_learning_rate")
    least = None if rate is None else rate / 10  # by the rules; some log the ratio instead
    values = {"GBS": size, "LR": rate, "MIN_LR": least}
    variables: dict[str, Any] = {"BENCHMARK": benchmark.name}
    variables |= {name: f"{value:.12g}" for name, value in values.items() if value is not None}
    switch = NUMBER_FORMATS[contents.precision].use_bf16
    variables |= {"PRECISION": contents.precision} if switch is None else {"USE_BF16": str(switch).lower()}
    options = [f"--submission-org={contents.org}"]
    usual, warm_up = benchmark.optimizer.lr_warmup_samples, _warm_up(result, benchmark)
    if warm_up is not None and warm_up != usual:
        options.append(f"--lr-warmup-samples={warm_up:.0f}")
    variables["TRAIN_OPTIONS"] = " ".join(options)
    return variables


def _warm_up(result: RecordedRun, benchmark: Benchmark) -> float | None:
    """Return the samples of the warm-up: as configured, or from the log's number of steps, if the usual
    samples contradict it."""
    configured = result.config.get("benchmark", {}).get("optimizer", {}).get("lr_warmup_samples")
    if configured is not None:
        return float(configured)
    log, usual = result.summary.log, benchmark.optimizer.lr_warmup_samples
    size, steps = log.number("global_batch_size"), log.number("opt_learning_rate_warmup_steps")
    if not size or steps is None:
        return None
    return usual if steps == math.ceil(usual / size) else steps * size


def _sbatch(description: Mapping[str, Any]) -> list[str]:
    """Return the options of sbatch for machines and processes per machine, from the description of the system."""
    return [
        f"--nodes={description.get('number_of_nodes', '')}",
        f"--ntasks-per-node={description.get('accelerators_per_node', '')}",
    ]


def _one_line(value: Any) -> str:
    """Return the value as text that stays within a comment."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())


def _markdown(value: Any) -> str:
    """Return the value as text for a Markdown paragraph or table cell: one line, without markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", _one_line(value))
