"""Honest variants on made-up and published submissions: none is refused, and restarts are one question.

    PUBLISHED_LOGS=rounds python -m tests.speed.trials [--only WORDS]

PUBLISHED_LOGS holds training_results_v3.0 to v5.1. Prints what is judged otherwise than is due, and how many.
"""

import argparse
import copy
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmark.judging.results.subjects import SubmissionPackage
from benchmark.judging.review.verdict import own_findings
from benchmark.run_record.events.mllog import TOKEN
from tests.benchmark.judging.review.fixture import LLAMA_N1, LLAMA_N8, Log, Submission, made_up, with_steps
from tests.benchmark.judging.review.honest_submissions import HONEST
from tests.benchmark.judging.review.restarted_runs import RESTARTS

ROUNDS = Path(os.environ.get("PUBLISHED_LOGS", "/nowhere"))
RULESETS = {"gpt3": "4.1.0", "llama31_8b": "5.1.0"}
PUBLISHED = {
    "steps": "training_results_v4.1/NVIDIA/results/eos_n64_ngc24.09_nemo/gpt3",
    "32 nodes": "training_results_v4.1/NVIDIA/results/eos_n32_ngc24.09_nemo/gpt3",
    "1452 nodes": "training_results_v4.0/NVIDIA/results/eos-dfw_n1452_ngc24.04_nemo/gpt3",
    "tpu": "training_results_v4.1/Google/results/cloud-tpu-trillium-2048-maxtext/gpt3",
    "6144 chips": "training_results_v4.1/Google/results/cloud-tpu-v5p-12288-maxtext/gpt3",
    "gaudi": "training_results_v3.1/Intel-HabanaLabs/results/HLS-Gaudi2-N48-PT/gpt3",
    "unsteady": "training_results_v4.1/Oracle/results/3072xBM.GPU.H100.8/gpt3",
    "one node of MI355X": "training_results_v5.1/AMD/results/MI355X_EPYC_9575F_pytorch/llama31_8b",
    "8 GB200": "training_results_v5.1/NVIDIA/results/theia_ngpu8_ngc25.09_nemo/llama31_8b",
    "18 nodes of GB300": "training_results_v5.1/Lambda/results/gb300_n18_ngc25.04_nemo/llama31_8b",
    "64 H200": "training_results_v5.1/HPE/results/HPE-Cray-XD670-H200-SXM5-141GB_n8_25.09/llama31_8b",
}
COPIES = "published.copy"
"""Rule that tells a published run with a change, which every variant of a published submission is."""


def published(folder: Path) -> Submission:
    """Return the runs of ORG/results/SYSTEM/BENCHMARK as they were handed in, without other programs' output."""
    org, system = folder.parents[2], folder.parent.name
    description = json.loads((org / "systems" / f"{system}.json").read_text())
    logs = []
    for path in sorted(folder.glob("result_*.txt")):
        lines = path.read_text("latin-1").splitlines()
        logs.append(Log([json.loads(line.rpartition(TOKEN)[2]) for line in lines if TOKEN in line]))
    return Submission(org.name, system, logs, description, folder.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    bases = {"made": made_up(), "made with steps": with_steps()}
    bases |= {"llama, one node": made_up(LLAMA_N1), "llama, 8 nodes": made_up(LLAMA_N8)}
    bases |= {name: published(ROUNDS / path) for name, path in PUBLISHED.items() if (ROUNDS / path).is_dir()}
    counts: Counter[str] = Counter()
    for name, base in bases.items():
        usual = set(_judged(copy.deepcopy(base)))
        for trial in (one for one in HONEST if only in one.name and (not one.bases or name in one.bases)):
            submission = copy.deepcopy(base)
            trial.change(submission)
            found = [one for one in _judged(submission) if one not in usual]
            refused = [one for one in found if one[0] == "error"]
            counts["refused" if refused else f"{len(found)} questions"] += 1
            if refused or len(found) > (1 if trial in RESTARTS else 2):
                print(f"{name}: {trial.name}:", *found)
    print(f"{sum(counts.values())} trials of {len(HONEST)} honest variants on {len(bases)} submissions:", dict(counts))
    return 1 if counts["refused"] else 0


def _judged(submission: Submission) -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        package = SubmissionPackage(submission.write(Path(folder)), RULESETS[submission.benchmark])
        found = own_findings(package)
    return [(one.severity, one.rule) for one in found if one.severity != "note" and one.rule != COPIES]


if __name__ == "__main__":
    sys.exit(main())
