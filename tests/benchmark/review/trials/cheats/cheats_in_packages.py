"""What is hidden in the folders of a package, and descriptions that evade a check."""

import io
import json
import tarfile
import zipfile
from typing import Any

from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial, as_lines
from tests.benchmark.review.trials.trial_table import Change, TrialTable

cheat = TrialTable()


def fields(**changes: Any) -> Change:
    def change(one: SubmissionOnTrial) -> None:
        one.description |= changes

    return change


def run_of(one: SubmissionOnTrial) -> bytes:
    return as_lines(one.logs[0].records).encode()


@cheat("runs in an archive of tar among the code", "asked")
def _tar(one: SubmissionOnTrial) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        entry = tarfile.TarInfo("logs/result_9.txt")
        entry.size = len(run_of(one))
        archive.addfile(entry, io.BytesIO(run_of(one)))
    one.file(f"{one.code}/cache.bin", content.getvalue())


@cheat("runs in a zip archive beside the results", "rejected")
def _zip(one: SubmissionOnTrial) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("result_4.txt", run_of(one))
    one.file(f"{one.results}/more.zip", content.getvalue())


@cheat("runs in a zip archive among the code", "asked")
def _zip_in_code(one: SubmissionOnTrial) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("wheel/result_4.txt", run_of(one))
    one.file(f"{one.code}/vendored.whl", content.getvalue())


@cheat("a run in UTF-16 among the code", "asked")
def _utf16(one: SubmissionOnTrial) -> None:
    one.file(f"{one.code}/notes.txt", run_of(one).decode().encode("utf-16"))


@cheat("a run in the output of a notebook", "asked")
def _notebook(one: SubmissionOnTrial) -> None:
    lines = run_of(one).decode().splitlines(keepends=True)
    cell = {"cell_type": "code", "source": [], "outputs": [{"output_type": "stream", "text": lines}]}
    one.file(f"{one.code}/analysis.ipynb", json.dumps({"cells": [cell], "nbformat": 4}))


@cheat("a run in a hidden folder", "asked")
def _hidden_folder(one: SubmissionOnTrial) -> None:
    one.file(f"{one.code}/.cache/a", run_of(one))


@cheat("results of gpt3 under gpt-3 as well", "rejected")
def _gpt_3(one: SubmissionOnTrial) -> None:
    for number in range(3):
        one.file(f"results/{one.system}/gpt-3/result_{number}.txt", run_of(one))


@cheat("results folder with a blank behind its name as well", "rejected")
def _blank_folder(one: SubmissionOnTrial) -> None:
    for number in range(3):
        one.file(f"results/{one.system}/gpt3 /result_{number}.txt", run_of(one))


for _name, _fields in (
    ("nodes with an underscore that int() skips", {"number_of_nodes": "6_4"}),
    ("nodes with a plus sign", {"number_of_nodes": "+64"}),
    ("framework is what a template left there", {"framework": "${FRAMEWORK}"}),
    ("framework is INSERT NAME HERE", {"framework": "INSERT NAME HERE"}),
    ("framework N/A", {"framework": "N/A"}),
    ("framework is a row of question marks", {"framework": "???"}),
    ("hardware that is not for sale under an available status", {"hw_notes": "engineering sample, not for sale"}),
    ("status available, notes say preview", {"sw_notes": "preview, available in Q3 2026"}),
):
    cheat(f"description: {_name}", "asked")(fields(**_fields))
