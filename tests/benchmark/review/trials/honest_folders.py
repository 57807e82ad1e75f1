"""Descriptions and folders as other submitters have them. None of it may be rejected."""

import json
from typing import Any

from tests.benchmark.review.trials.log_changes import power_log
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import TrialTable

honest = TrialTable()


@honest("description with fields of its own")
def _fields(one: SubmissionOnTrial) -> None:
    one.description |= {
        "power_supply": "2 x 3 kW",
        "framework_name": "ours",
        "network": {"switches": 12, "speeds": [400]},
    }


@honest("description with line ends of Windows")
def _description_windows(one: SubmissionOnTrial) -> None:
    one.bytes_of(one.description_path, lambda content: content.replace(b"\n", b"\r\n"))


@honest("counts as numbers where the tools take them")
def _numbers(one: SubmissionOnTrial) -> None:
    one.description["number_of_nodes"] = int(one.description["number_of_nodes"])


@honest("documents beside it, and a licence")
def _documents_folder(one: SubmissionOnTrial) -> None:
    one.file("documentation/calibration.md", "none\n")
    one.file("LICENSE", "Apache-2.0\n")


@honest("power logs, as round 4.0 has them")
def _power(one: SubmissionOnTrial) -> None:
    for number, log in enumerate(one.logs):
        for node in range(int(one.description["number_of_nodes"])):
            path = f"{one.results}/power/result_{number}/node_{node}.txt"
            one.file(path, power_log(log, 812.0 * int(one.description["accelerators_per_node"])))


@honest("description of a system without results")
def _without_results(one: SubmissionOnTrial) -> None:
    one.file("systems/other_h100.json", json.dumps(one.description | {"system_name": "other"}))


@honest("result files numbered from 1, with an identifier")
def _numbered(one: SubmissionOnTrial) -> None:
    def change(package: Any) -> None:
        for number in (2, 1, 0):
            (package / one.results / f"result_{number}.txt").rename(
                package / one.results / f"result_5849-{number + 1}.txt"
            )

    one.afterwards.append(change)
