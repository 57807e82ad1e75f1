"""What a reviewer adds to a finding: the public text that a rule stands in, and what to ask the submitter."""

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
    "7.6": f'{TRAINING_RULES}, "GPT3 hyperparameter constraints"',
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
    "3": f"{TOOLS}, compliance_checker/training_*/closed_gpt3.yaml and common.yaml",
    "2": f"{TOOLS}, mllog and compliance_checker/mlp_parser",
    "1": f"{TOOLS}, benchmark_meta.py",
    "6": "no rule: what published, accepted logs have in common",
    "8": "no rule: advice of docs/facts/mlperf_review.md",
}
"""Where the public text of a section of docs/facts/mlperf_review.md stands; a chapter stands for its other sections."""
BINDING = ("7", "5", "4", "3", "2", "1", "6", "8")
"""Chapters, the rules' own text first."""

QUESTIONS: Mapping[str, str] = {
    "record": "Is this the file as the run wrote it? Please send the original.",
    "file": "Is this the file as the run wrote it? Please send the original.",
    "key": "Is this the whole log of one run? Please send it as it was written.",
    "value": "Was the run made with this value, or only logged so? Please show it in the code.",
    "block": "Which steps lie between these records?",
    "seed": "Where does the seed come from, and where is it logged? Please point to the code.",
    "schedule": "Was the run made with this schedule? Please show where the code computes it.",
    "batch": "Was the run made with this batch size, and were reference points asked for?",
    "clock": "What happened between these times? Please send the job's own log of that period.",
    "init": "What was done in this time, and did any of it touch the dataset?",
    "restart": "From which checkpoint did the run go on, and with which samples?",
    "eval": "What was evaluated here, on which documents, and with which weights? Please point to the code.",
    "stop": "When was the target known to be met, and what did the run do until its record of the stop?",
    "tokens": "How many tokens were trained, by the code's own counter?",
    "throughput": "How was this figure computed?",
    "runs": "How were these runs chosen, and which others were made? Please send their logs.",
    "steps": "Are these the steps of this run, as the code logged them? Please send the job's own output.",
    "round": "How does this run come to agree with those of other submitters? Please send the whole output of the job.",
    "published": "How does this run come to agree with a published one? Please send the whole output of the job.",
    "curve": "Which weights, data and code were trained and evaluated? Please send loss curves beside the reference's.",
    "speed": "Which devices ran this, in which precision? Please send the job's own log with its nodes and step times.",
    "named": "Which system made these runs? Please correct the log, the description or the name of the folder.",
    "rcp": "What makes it converge so? Please send loss curves beside the reference's and the number of parameters.",
    "power": "How was this energy measured, on which nodes, with which meters? Please send their own records.",
    "evidence": "Please send log and evidence as the run wrote them.",
    "system": "What is the right entry? Please send a corrected description.",
    "package": "Is this meant to be part of the submission? Please correct the folder or explain it.",
}
"""By the family of a rule, the first part of its name."""
ANY_QUESTION = "How did this come about? Please explain it, or correct it."


def public_rules(source: str) -> str:
    """Document and section of the public rules for the sections that ``source`` cites."""
    cited = re.findall(r"\b\d\.\d+\b", source)
    for chapter in BINDING:
        for section in cited:
            if section.partition(".")[0] == chapter:
                return PUBLIC_RULES.get(section, PUBLIC_RULES[chapter])
    return ""


def family_question(rule: str) -> str:
    """What is asked about every rule of the family of ``rule``."""
    return QUESTIONS.get(rule.partition(".")[0], ANY_QUESTION)


def question_to_submitter(where: str, found: str, due: str, question: str) -> str:
    """What is sent to a submitter: place, what stands there, what is due, the question."""
    return f"{where}: {found}; due: {due}. {question}"
