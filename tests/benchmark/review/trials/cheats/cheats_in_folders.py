"""Descriptions, names and files of a package that say something else than its logs, or hide something."""

import gzip
import json
import os
import shutil
from pathlib import Path

from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial, as_lines
from tests.benchmark.review.trials.trial_table import TrialTable

cheat = TrialTable()
GPT3 = "benchmarks/gpt3"


@cheat("description that begins with a byte order mark", "rejected")
def _mark(one: SubmissionOnTrial) -> None:
    one.bytes_of(one.description_path, lambda content: b"\xef\xbb\xbf" + content)


@cheat("description in UTF-16", "rejected")
def _utf16(one: SubmissionOnTrial) -> None:
    one.bytes_of(one.description_path, lambda content: content.decode().encode("utf-16"))


@cheat("description with a field NaN", "asked")
def _nan(one: SubmissionOnTrial) -> None:
    one.description["host_memory_capacity"] = float("nan")


@cheat("description with a comment", "rejected")
def _comment(one: SubmissionOnTrial) -> None:
    one.bytes_of(one.description_path, lambda content: b"// ours\n" + content)


@cheat("description with a second object behind the first", "rejected")
def _two_objects(one: SubmissionOnTrial) -> None:
    one.bytes_of(one.description_path, lambda content: content + content)


@cheat("submitter with a Cyrillic letter in the description", "asked")
def _cyrillic(one: SubmissionOnTrial) -> None:
    one.description["submitter"] = one.org.replace("o", "\u043e").replace("A", "\u0410")


@cheat("submitter with a zero-width blank in the description", "asked")
def _zero_width(one: SubmissionOnTrial) -> None:
    one.description["submitter"] = f"{one.org}\u200b"


@cheat("submitter with a blank behind it", "asked")
def _blank(one: SubmissionOnTrial) -> None:
    one.description["submitter"] = f"{one.org} "


@cheat("nodes in full-width digits", "asked")
def _digits(one: SubmissionOnTrial) -> None:
    one.description["number_of_nodes"] = "\uff16\uff14"


@cheat("division with a blank behind it", "rejected")
def _division(one: SubmissionOnTrial) -> None:
    one.description["division"] = "closed "


@cheat("division with a Cyrillic letter", "rejected")
def _division_letter(one: SubmissionOnTrial) -> None:
    one.description["division"] = "cl\u043esed"


@cheat("status with a no-break blank", "rejected")
def _status(one: SubmissionOnTrial) -> None:
    one.description["status"] = "Available\u00a0on-premise"


@cheat("a field twice, once with a blank behind its name", "asked")
def _field_blank(one: SubmissionOnTrial) -> None:
    one.description["number_of_nodes "] = "1"


@cheat("a field twice, once in capitals", "asked")
def _field_capitals(one: SubmissionOnTrial) -> None:
    one.description["Accelerator_Model_Name"] = "something else"


@cheat("an eighth of the devices in the description", "asked")
def _eighth(one: SubmissionOnTrial) -> None:
    one.description["accelerators_per_node"] = "1"


@cheat("half of the devices in the description", "asked", "steps")
def _half(one: SubmissionOnTrial) -> None:
    one.description["number_of_nodes"] = str(max(1, int(one.description["number_of_nodes"]) // 2))


@cheat("ten times the devices", "asked")
def _tenfold(one: SubmissionOnTrial) -> None:
    one.description["number_of_nodes"] = str(int(one.description["number_of_nodes"]) * 10)


@cheat("memory of another accelerator", "asked", "steps", "made")
def _memory(one: SubmissionOnTrial) -> None:
    one.description["accelerator_memory_capacity"] = "192 GB"


@cheat("an accelerator that nobody knows", "asked")
def _unknown(one: SubmissionOnTrial) -> None:
    one.description["accelerator_model_name"] = "Wonder X1"


@cheat("two accelerators in one name", "asked", "made", "steps")
def _two(one: SubmissionOnTrial) -> None:
    one.description["accelerator_model_name"] = "NVIDIA H100 / B200"


@cheat("no accelerators: their model is N/A", "asked")
def _none(one: SubmissionOnTrial) -> None:
    one.description["accelerator_model_name"] = "N/A"


@cheat("framework TBD", "asked")
def _tbd(one: SubmissionOnTrial) -> None:
    one.description["framework"] = "TBD"


@cheat("a fourth run in a folder below the results", "rejected")
def _nested(one: SubmissionOnTrial) -> None:
    one.file(f"{one.results}/discarded/result_3.txt", as_lines(one.logs[0].records))


@cheat("a fourth run, compressed", "rejected")
def _compressed(one: SubmissionOnTrial) -> None:
    one.file(f"{one.results}/result_3.txt.gz", gzip.compress(as_lines(one.logs[0].records).encode()))


@cheat("a fourth run under a hidden name", "rejected")
def _hidden(one: SubmissionOnTrial) -> None:
    one.file(f"{one.results}/.result_3.txt", as_lines(one.logs[0].records))


@cheat("a fourth run as RESULT_3.TXT", "rejected")
def _capitals(one: SubmissionOnTrial) -> None:
    one.file(f"{one.results}/RESULT_3.TXT", as_lines(one.logs[0].records))


@cheat("runs that failed among the code", "asked")
def _among_code(one: SubmissionOnTrial) -> None:
    for number in range(4):
        one.file(f"{one.code}/logs/run_{number}.log", as_lines(one.logs[0].records))


@cheat("runs that failed among the documents", "asked")
def _among_documents(one: SubmissionOnTrial) -> None:
    one.file("documentation/other_runs.txt", as_lines(one.logs[0].records))


@cheat("a run is a hard link to another", "rejected")
def _hard_link(one: SubmissionOnTrial) -> None:
    def change(package: Path) -> None:
        (package / one.results / "result_1.txt").unlink()
        os.link(package / one.results / "result_0.txt", package / one.results / "result_1.txt")

    one.afterwards.append(change)


@cheat("a run is a link to another", "rejected")
def _link(one: SubmissionOnTrial) -> None:
    def change(package: Path) -> None:
        (package / one.results / "result_1.txt").unlink()
        (package / one.results / "result_1.txt").symlink_to("result_0.txt")

    one.afterwards.append(change)


@cheat("results folder GPT3 in capitals", "rejected")
def _gpt3_capitals(one: SubmissionOnTrial) -> None:
    one.afterwards.append(lambda package: (package / one.results).rename((package / one.results).with_name("GPT3")))


@cheat("two systems whose names differ in case only", "asked")
def _case(one: SubmissionOnTrial) -> None:
    def change(package: Path) -> None:
        other = one.system.upper()
        shutil.copytree(package / "results" / one.system / "gpt3", package / "results" / other / "bert")
        shutil.copy(package / one.description_path, package / "systems" / f"{other}.json")

    one.afterwards.append(change)


@cheat("description in a folder below systems", "rejected")
def _below(one: SubmissionOnTrial) -> None:
    def change(package: Path) -> None:
        (package / "systems" / "old").mkdir()
        (package / one.description_path).rename(package / "systems" / "old" / f"{one.system}.json")

    one.afterwards.append(change)


@cheat("description as .JSON", "rejected")
def _ending(one: SubmissionOnTrial) -> None:
    one.afterwards.append(
        lambda package: (package / one.description_path).rename(package / "systems" / f"{one.system}.JSON")
    )


@cheat("code of another benchmark only", "asked")
def _other_code(one: SubmissionOnTrial) -> None:
    one.afterwards.append(lambda package: (package / GPT3).rename(package / "benchmarks" / "bert"))


@cheat("code files that are empty", "asked")
def _empty_code(one: SubmissionOnTrial) -> None:
    for name in ("README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh"):
        one.file(f"{one.code}/{name}", "")


@cheat("instructions still to be written", "asked")
def _readme(one: SubmissionOnTrial) -> None:
    one.file(f"{one.code}/README.md", "# TODO: how to run it\n")


@cheat("no script for this system, only for another one", "asked")
def _other_system(one: SubmissionOnTrial) -> None:
    def change(package: Path) -> None:
        for name in ("run_and_time.sh", "setup.sh"):
            (package / one.code / name).unlink()

    one.afterwards.append(change)


@cheat("scaling factor as text", "rejected")
def _factor_text(one: SubmissionOnTrial) -> None:
    one.file(f"{one.results}/scaling.json", '{"scaling_factor": "1.0"}')


@cheat("scaling factor NaN", "rejected")
def _factor_nan(one: SubmissionOnTrial) -> None:
    one.file(f"{one.results}/scaling.json", '{"scaling_factor": NaN}')


@cheat("scaling factor twice", "rejected")
def _factor_twice(one: SubmissionOnTrial) -> None:
    one.file(f"{one.results}/scaling.json", '{"scaling_factor": 1.2, "scaling_factor": 0.9}')


@cheat("scaling factor of 0.5 in Scaling.json", "asked")
def _factor_capitals(one: SubmissionOnTrial) -> None:
    one.file(f"{one.results}/Scaling.json", '{"scaling_factor": 0.5}')


@cheat("parameters of the checker in capitals", "asked")
def _parameters(one: SubmissionOnTrial) -> None:
    one.file(f"{one.results}/PACKAGE_CHECKER_PARAMS", "rcp-bypass")


@cheat("a package within the package", "asked")
def _within(one: SubmissionOnTrial) -> None:
    one.file(f"{one.org}/{one.results}/result_0.txt", as_lines(one.logs[0].records))


@cheat("results of one folder under two names, by a link", "rejected")
def _linked_system(one: SubmissionOnTrial) -> None:
    def change(package: Path) -> None:
        (package / "results" / "other").symlink_to(one.system)
        (package / "systems" / "other.json").write_text(json.dumps(one.description))

    one.afterwards.append(change)


@cheat("a run that cannot be read", "rejected")
def _pipe(one: SubmissionOnTrial) -> None:
    def change(package: Path) -> None:
        (package / one.results / "result_1.txt").unlink()
        os.mkfifo(package / one.results / "result_1.txt")

    one.afterwards.append(change)


@cheat("file names that differ in case only", "asked")
def _file_case(one: SubmissionOnTrial) -> None:
    one.file(f"{one.code}/readme.md", "the other one\n")


@cheat("a name that looks like another: Cyrillic letters in the system's folder", "asked")
def _system_letters(one: SubmissionOnTrial) -> None:
    one.system = one.system.replace("a", "\u0430").replace("o", "\u043e")


@cheat("system_name of another system than the folder's", "asked", "made", "steps")
def _system_name(one: SubmissionOnTrial) -> None:
    one.description["system_name"] = "gb200_n4096"
