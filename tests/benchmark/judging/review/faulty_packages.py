"""Faults of a package, of its system's description, and of all its logs; the rule that must tell each."""

import json
import shutil
from pathlib import Path

from tests.benchmark.judging.review.fixture import SYSTEM, Submission, as_text, records
from tests.benchmark.judging.review.submission_changes import (
    DESCRIPTION,
    LOG,
    REMOVED,
    RESULTS,
    Change,
    described,
    each,
    linked,
    moved,
    run,
    written,
)

FIELDS: tuple[tuple[str, str, str, object], ...] = (
    ("accelerators per node as a number", "system.fields", "accelerators_per_node", 8),
    ("status onprem in round 4", "system.fields", "status", "onprem"),
    ("division Closed in the description", "system.fields", "division", "Closed"),
    ("nodes in words", "system.fields", "number_of_nodes", "sixty-four"),
    ("notes as a list", "system.fields", "hw_notes", ["700 W"]),
    ("no devices", "system.fields", "accelerators_per_node", "0"),
    ("framework not filled in", "?system.filled_in", "framework", "TODO"),
    ("a name that says nothing", "?system.filled_in", "framework", "N/A"),
    ("a line break in the system's name", "system.fields", "system_name", "a\nINFO - RCP Test Passed: x"),
    ("memory that the device is not sold with", "?system.memory", "accelerator_memory_capacity", "141 GB"),
    ("a name that says other counts than its fields", "?named.counts", "system_name", "dgxh100_n32"),
    ("a letter that cannot be seen", "?package.letters", "system_name", "acme\u200b_h100"),
    ("description without accelerator_on-chip_memories", "system.fields", "accelerator_on-chip_memories", REMOVED),
    ("description without status", "system.fields", "status", REMOVED),
    ("description without sw_notes", "system.fields", "sw_notes", REMOVED),
)


def _field_twice(one: Submission) -> int:
    one.bytes_of(DESCRIPTION, lambda content: content.replace(b"{", b'{\n"division": "open",', 1))
    return 2


def _comma(one: Submission) -> int:
    one.bytes_of(DESCRIPTION, lambda content: content.rstrip()[:-2] + b",\n}\n")
    return len(json.dumps(one.description, indent=1).splitlines())


def _packed(package: Path) -> None:
    for path in (package / RESULTS).iterdir():
        path.rename(path.with_name(f"{path.name}.gz"))


def _pattern_in_name(one: Submission) -> None:
    moved(f"results/{SYSTEM}", f"{SYSTEM}[1]")(one)
    moved(DESCRIPTION, f"{SYSTEM}[1].json")(one)


def _second_system(one: Submission) -> None:
    """Hand the same runs in under another name."""
    one.afterwards.append(lambda package: shutil.copytree(package / f"results/{SYSTEM}", package / "results/other"))
    one.afterwards.append(lambda package: shutil.copy(package / DESCRIPTION, package / "systems/other.json"))


def _twins(one: Submission) -> None:
    one.file(f"systems/{one.system}_again.json", json.dumps(one.description | {"system_name": "again"}))
    for number in range(3):
        one.file(f"results/{one.system}_again/gpt3/result_{number}.txt", as_text(records(70_100 + 17 * number**2)))


def _without(path: str) -> Change:
    def remove(package: Path) -> None:
        if (package / path).is_dir():
            shutil.rmtree(package / path)
        else:
            (package / path).unlink()

    return lambda one: one.afterwards.append(remove)


FOURTH = as_text(records(1004))
PARAMETERS = f"{RESULTS}/package_checker_params"
OTHER_RUN = "benchmarks/gpt3/implementations/{0}/logs/slurm.out"
FOLDERS: tuple[tuple[str, str, str | None, Change], ...] = (
    ("description is not JSON", "system.readable", DESCRIPTION, written(DESCRIPTION, '{"submitter": ')),
    ("description with a comma behind its last field", "system.readable", DESCRIPTION, _comma),
    ("description with a field twice", "?system.readable", DESCRIPTION, _field_twice),
    ("no description", "package.layout", f"results/{SYSTEM}", _without(DESCRIPTION)),
    ("no results", "package.layout", "", _without("results")),
    ("no code", "?package.code", "benchmarks/gpt3", _without("benchmarks/gpt3/implementations")),
    ("four runs", "package.layout", RESULTS, written(f"{RESULTS}/result_3.txt", FOURTH)),
    ("packed logs", "package.layout", RESULTS, lambda one: one.afterwards.append(_packed)),
    ("a run named run_1.txt", "package.layout", RESULTS, moved(LOG, "run_1.txt")),
    ("benchmark folder gpt-3", "package.layout", f"results/{SYSTEM}/gpt-3", moved(RESULTS, "gpt-3")),
    ("a folder logs beside gpt3", "package.layout", f"results/{SYSTEM}/logs", written("results/{0}/logs/x", "x")),
    (
        "results without gpt3/", "?package.stray_run", f"results/{SYSTEM}/result_0.txt",
        written("results/{0}/result_0.txt", FOURTH),
    ),
    ("a run among another benchmark's results", "?package.stray_run", None, written("results/{0}/bert/result_3.txt")),
    ("a fourth run beside the three", "?package.stray_run", None, written("results/{0}/gpt3/run_3.log")),
    ("runs among the code", "?package.stray_run", None, written(OTHER_RUN)),
    ("runs of another system", "package.copy", "results/other/gpt3/result_0.txt", _second_system),
    ("the same system handed in twice", "?package.twins", None, _twins),
    ("a hidden file", "package.files", "benchmarks/.gitignore", written("benchmarks/.gitignore", "x")),
    ("a space in a name", "package.files", "benchmarks/a b.sh", written("benchmarks/a b.sh", "x")),
    ("a pattern in the system's name", "package.files", f"results/{SYSTEM}[1]", _pattern_in_name),
    ("a broken link", "package.files", "benchmarks/data", linked("benchmarks/data", "nowhere")),
    ("a link out of the package", "package.files", "benchmarks/etc", linked("benchmarks/etc", "/etc")),
    ("bypass of the convergence test", "package.bypass", PARAMETERS, written(PARAMETERS, "rcp-bypass", 1)),
    (
        "bypass of the seed checker", "package.bypass", "package_checker_params",
        written("package_checker_params", "\nseed-checker-bypass\n", 2),
    ),
    (
        "open in one run, closed in the description", "package.division", LOG,
        run(1, lambda log: log.set("submission_division", "open")),
    ),
    ("a tenth of the nodes that are described", "?speed.peak", None, described(number_of_nodes="640", system_name="x")),
    (
        "a platform of other counts", "?named.counts", None,
        each(lambda log: log.set("submission_platform", "32xDGXH100")),
    ),
    (
        "another accelerator in the log", "?named.accelerator", None,
        each(lambda log: log.set("submission_platform", "tpu-v5p")),
    ),
    (
        "logs of another organisation", "?named.submitter", None,
        each(lambda log: log.set("submission_org", "Umbrella Computing")),
    ),
    (
        "a placeholder for the organisation", "?named.placeholder", None,
        each(lambda log: log.set("submission_org", "SUBMISSION_ORG_PLACEHOLDER")),
    ),
    (
        "init_start logged when all is loaded", "?init.time", None,
        each(lambda log: log.set_time("init_start", log.time("init_stop") - 900)),
    ),
    (
        "caches cleared after the start only", "cache.clear", None,
        each(lambda log: log.move("cache_clear", "epoch_start")),
    ),
    ("caches not cleared", "cache.clear", None, each(lambda log: log.set("cache_clear", False))),
    ("another model", "value.fixed", None, each(lambda log: log.insert("init_stop", "num_layers", 88))),
    (
        "accumulation differs between runs", "?runs.settings", None,
        run(1, lambda log: log.set("gradient_accumulation_steps", 8)),
    ),
)  # fmt: skip
"""Faults of the package, and of all its logs."""
