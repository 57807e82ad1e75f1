"""Write the documents of a package that are not copied: README, scripts, the description of the implementation."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import checksums
from benchmark.config.system_config import System
from benchmark.config.systems import DEFAULT_SYSTEM, SYSTEMS, system_called
from benchmark.results.recorded_run import RecordedRun, settings
from checksums.md5_list import read_list

Runs = Sequence[RecordedRun]
SCRIPTS = ("setup.sh", "init_datasets.sh", "run_and_time.sh")
NOT_OPTIONS = ("name", "nodes", "devices_per_node", "platform")
"""Fields of a system that run_gpt3.sh sets by other means than options."""


@dataclass(frozen=True)
class Contents:
    """Facts for the documents of a package."""

    org: str
    implementation: str
    """Folder of the code."""
    commit: str | None
    """Commit of the code."""
    description: Mapping[str, Any]
    """Description of the system."""
    results: Sequence[RecordedRun]
    precision: str
    """Precision of the runs: fp32 or bf16."""
    other_code: bool
    """True if code other than this repository's made the results."""


def write_documents(folder: Path, contents: Contents, manifests: Sequence[str]) -> None:
    """Write README.md and the scripts of one system. Texts from logs and JSON are quoted for the place where they
    stand."""
    first, templates = contents.results[0], _templates()
    held = {topic: supported(contents.results) for topic, (_, supported) in CLAIMS.items()}
    content = {
        **vars(contents),
        "system_name": contents.description.get("system_name", ""),
        "settings": settings(first),
        "runs": [_run(result, number) for number, result in enumerate(contents.results)],
        "claims": [text for topic, (text, _) in CLAIMS.items() if held[topic]],
        "untold": [topic for topic, holds in held.items() if not holds],
        "manifests": manifests,
        "environment": first.environment,
        "variables": _variables(first, contents),
        "sbatch": _sbatch(contents.description),
    }
    for name in ("README.md", *SCRIPTS):
        path = folder / name
        path.write_text(templates.get_template(f"{name}.j2").render(content), encoding="utf-8")
        if name in SCRIPTS:
            path.chmod(0o755)


def _published(names: Sequence[str]) -> Callable[[Runs], bool]:
    """Return a function that tells whether each run recorded these files with the digests that MLCommons published."""
    return lambda runs: all(run.digests.get(name) == PUBLISHED_DATA[name] for run in runs for name in names)


def _checkpoint_stamped(runs: Runs) -> bool:
    """Return whether each run recorded a digest for an input that is not a data file."""

    def stamped(run: RecordedRun) -> bool:
        digests = run.digests.items()
        return any(digest is not None for name, digest in digests if not name.endswith((".bin", ".idx")))

    return all(map(stamped, runs))


PUBLISHED_DATA: Mapping[str, str] = read_list(Path(checksums.__path__[0]) / "dataset_checksum.log")
"""MD5 of the benchmark's preprocessed files by name, as MLCommons published them."""
TRAINING_FILES = tuple(name for name in PUBLISHED_DATA if "validation" not in name)
VALIDATION_FILES = tuple(name for name in PUBLISHED_DATA if "validation" in name)
CLAIMS: Mapping[str, tuple[str, Callable[[Runs], bool]]] = {
    "the training data": (
        f"Training data: {', '.join(name for name in TRAINING_FILES if name.endswith('.bin'))}, with the digests that "
        "MLCommons published for them.",
        _published(TRAINING_FILES),
    ),
    "the validation data": (
        "Validation data: the benchmark's subset, with the digests that MLCommons published for it.",
        _published(VALIDATION_FILES),
    ),
    "the digests of the initial checkpoint": (
        "The initial checkpoint is named by its digest in `manifests/`.",
        _checkpoint_stamped,
    ),
}
"""Claims that no review checks, by topic: the sentence, and a function that tells whether the runs support it. The
README names unsupported topics as such."""


def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=False,  # Markdown and shell, each with the filter of its own
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(md=_markdown, sh=lambda value: shlex.quote(str(value)), comment=_one_line)
    return environment


def _run(result: RecordedRun, number: int) -> list[str]:
    summary = result.summary
    values = [evaluation.log_perplexity for evaluation in summary.evaluations]
    return [
        f"result_{number}.txt",
        ", ".join(map(str, summary.seeds)),
        "-" if summary.minutes is None else f"{summary.minutes:.2f}",
        "-" if summary.trained_tokens is None else f"{summary.trained_tokens:,.0f}",
        str(len(values)),
        "-" if not values or values[-1] is None else f"{values[-1]:.5f}",
    ]


def _variables(result: RecordedRun, contents: Contents) -> dict[str, Any]:
    """Return the environment with which run_gpt3.sh repeats such a run."""
    log = result.summary.log
    rate = log.number("opt_base_learning_rate")
    least = None if rate is None else rate / 10  # by the rules; some log the ratio instead
    found = {"GBS": log.number("global_batch_size"), "LR": rate, "MIN_LR": least}
    variables: dict[str, Any] = {name: f"{value:.12g}" for name, value in found.items() if value is not None}
    variables["USE_BF16"] = "true" if contents.precision == "bf16" else "false"
    system = result.config.get("system", {})
    benchmark, name = str(result.config.get("benchmark", {}).get("name")), str(system.get("name"))
    if name not in SYSTEMS:  # a user's own: every field in which it differs from the benchmark's system is an option
        name = DEFAULT_SYSTEM.get(benchmark, "") if system else ""
    changed = []
    if name:
        variables["SYSTEM"] = name
        changed = _changed_options(system, system_called(name, benchmark))
    variables["TRAIN_OPTIONS"] = " ".join([f"--submission-org={contents.org}", *changed])
    return variables


def _changed_options(system: Mapping[str, Any], named: System) -> list[str]:
    """Return the options of ``train`` for the fields in which the run's system differs from the named one."""
    usual, found = _options_of(asdict(named)), _options_of(system)
    return [
        _option(name, value)
        for name, value in found.items()
        if name not in NOT_OPTIONS and name in usual and usual[name] != value
    ]


def _options_of(system: Mapping[str, Any]) -> dict[str, Any]:
    """Return a system's fields, those of its sections among them: options know no sections."""
    found: dict[str, Any] = {}
    for name, value in system.items():
        found |= value if isinstance(value, dict) else {name: value}
    return found


def _option(name: str, value: Any) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag}={value}"


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
