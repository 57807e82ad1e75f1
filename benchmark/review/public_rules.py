"""Find the public text of a rule from the sections of docs/facts/mlperf_review.md that it cites."""

import re
from collections.abc import Mapping

TRAINING_RULES = "mlcommons/training_policies, training_rules.adoc"
SUBMISSION_RULES = "mlcommons/policies, submission_rules.adoc"
TOOLS = "mlperf-logging"

PUBLIC_RULES: Mapping[str, str] = {
    "7.1": f'{TRAINING_RULES}, "Data State at Start of Run"',
    "7.2": f'{TRAINING_RULES}, "Model" and "Pre-training is not allowed"',
    "7.3": f'{TRAINING_RULES}, "Run Results"',
    "7.4": f'{TRAINING_RULES}, "Run Results"',
    "7.5": f'{TRAINING_RULES}, "Hyperparameters"',
    "7.6": f"{TRAINING_RULES}, the hyperparameter constraints of the benchmark",
    "7.7": f'{TRAINING_RULES}, "Hyperparameters"',
    "7.8": f'{TRAINING_RULES}, "Quality measure"',
    "7.9": f'{TRAINING_RULES}, "Benchmark Results" and "Scoring"',
    "7.10": f'{TRAINING_RULES}, "Random numbers"',
    "7.11": f'{TRAINING_RULES}, "Handling RCP Failures"',
    "7.12": f'{SUBMISSION_RULES}, "Submission content"',
    "7.13": f'{SUBMISSION_RULES}, "Results categories"',
    "7": TRAINING_RULES,
    "5": f'{TRAINING_RULES}, "Reference Convergence Points (RCPs)"',
    "4.1": f'{SUBMISSION_RULES}, "Directory structure"',
    "4.2": f'{SUBMISSION_RULES}, "Directory structure"',
    "4.3": f"{TOOLS}, package_checker",
    "4.4": f"{TOOLS}, package_checker/seed_checker.py",
    "4.5": f'{SUBMISSION_RULES}, "<system_desc_id>.json metadata"',
    "4.6": f'{SUBMISSION_RULES}, "Results categories"',
    "4.7": f"{TOOLS}, system_desc_checker and result_summarizer",
    "4.8": f'{TRAINING_RULES}, "Divisions"',
    "4.9": f'{TRAINING_RULES}, "Handling RCP Failures"',
    "4.12": f"{TOOLS}, repo_checker",
    "4.14": f"{TOOLS}, rcp_checker",
    "4.15": f'{TRAINING_RULES}, "Score scaling"',
    "4": f"{TOOLS}, package_checker",
    "3": f"{TOOLS}, compliance_checker/training_*/closed_*.yaml and common.yaml",
    "2": f"{TOOLS}, mllog and compliance_checker/mlp_parser",
    "1": f"{TOOLS}, benchmark_meta.py",
    "6": "no rule: what published, accepted logs have in common",
    "8": "no rule: advice of docs/facts/mlperf_review.md",
}
"""Public text of each section of docs/facts/mlperf_review.md; a chapter stands for its other sections."""
BINDING = ("7", "5", "4", "3", "2", "1", "6", "8")
"""Chapters in order of preference, the rules' own text first."""


def public_rules(source: str) -> str:
    """Return document and section of the public rules for the sections that ``source`` cites."""
    cited = re.findall(r"\b\d\.\d+\b", source)
    for chapter in BINDING:
        for section in cited:
            if section.partition(".")[0] == chapter:
                return PUBLIC_RULES.get(section, PUBLIC_RULES[chapter])
    return ""
