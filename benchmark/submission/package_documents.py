"""The documents of a package that are written, not copied: README, scripts, the description of the implementation."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.results.recorded_run import RecordedRun, settings
from benchmark.submission.readme_claims import supported_claims
from stage.git import commit_of

SCRIPTS = ("setup.sh", "init_datasets.sh", "run_and_time.sh")
NOT_OPTIONS = ("name", "nodes", "devices_per_node", "platform")
"""Fields of a system that run_gpt3.sh sets by other means."""


def write_documents(
    folder: Path,
    org: str,
    implementation: str,
    description: Mapping[str, Any],
    results: Sequence[RecordedRun],
    manifests: Sequence[str],
) -> None:
    """README.md and the scripts of one system. What comes from logs and JSON is quoted for where it stands."""
    first, templates = results[0], _templates()
    claims, untold = supported_claims(results)
    content = {
        "org": org,
        "implementation": implementation,
        "system_name": description.get("system_name", ""),
        "commit": commit_of(),
        "settings": settings(first),
        "runs": [_run(result, number) for number, result in enumerate(results)],
        "claims": claims,
        "untold": untold,
        "manifests": manifests,
        "environment": first.environment,
        "precision": precision_of(first),
        "variables": _variables(first, org),
        "sbatch": _sbatch(description),
    }
    for name in ("README.md", *SCRIPTS):
        path = folder / name
        path.write_text(templates.get_template(f"{name}.j2").render(content), encoding="utf-8")
        if name in SCRIPTS:
            path.chmod(0o755)


def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=False,  # Markdown and shell, each with the filter of its own
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(md=_markdown, sh=lambda value: shlex.quote(str(value)), comment=_one_line)
    return environment


def precision_of(result: RecordedRun) -> str:
    """fp32 or bf16, which a log alone does not tell."""
    return "fp32" if result.config.get("precision") == "fp32" else "bf16"


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


def _variables(result: RecordedRun, org: str) -> dict[str, Any]:
    """Environment of run_gpt3.sh for such a run."""
    summary = result.summary
    found = {"GBS": summary.global_batch_size, "LR": summary.learning_rate.base}
    variables = {
        name: f"{value:g}" if name != "GBS" else int(value) for name, value in found.items() if value is not None
    }
    if summary.learning_rate.base is not None:
        variables["MIN_LR"] = f"{summary.learning_rate.base / 10:g}"  # by the rules; some log the ratio instead
    variables["USE_BF16"] = "true" if precision_of(result) == "bf16" else "false"
    system = result.config.get("system", {})
    named = SYSTEMS.get(str(system.get("name")))
    if named is not None:
        variables["SYSTEM"] = named.name
    changed = [] if named is None else _changed_options(system, named)
    variables["TRAIN_OPTIONS"] = " ".join([f"--submission-org={org}", *changed])
    return variables


def _changed_options(system: Mapping[str, Any], named: System) -> list[str]:
    """Options of ``train`` for what the run's system has other than the one its name stands for."""
    usual = asdict(named)
    return [
        _option(name, value)
        for name, value in system.items()
        if name not in NOT_OPTIONS and name in usual and usual[name] != value
    ]


def _option(name: str, value: Any) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag}={value}"


def _sbatch(description: Mapping[str, Any]) -> list[str]:
    """Machines and processes per machine, as the description of the system has them."""
    return [
        f"--nodes={description.get('number_of_nodes', '')}",
        f"--ntasks-per-node={description.get('accelerators_per_node', '')}",
    ]


def _one_line(value: Any) -> str:
    """Text that stays within a comment."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())


def _markdown(value: Any) -> str:
    """Text in a Markdown paragraph or table cell: one line, nothing of it markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", _one_line(value))
