"""Logs, descriptions and folders that name different systems; the harmless ways in which published ones do."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.published.published_traces import published_traces
from benchmark.review.rules import naming_rules
from benchmark.review.rules.naming_rules import counts_in, models_in
from tests.benchmark.review.damage import LOG, Log
from tests.benchmark.review.fixture import SEEDS, SYSTEM, as_text, records, write_package

RULES = (
    "counts", "counts_in_folder", "accelerator_maker", "accelerator_model", "status_class", "status_place",
    "other_submitter", "placeholders",
)  # fmt: skip
CASES: tuple[tuple[str, Any, str, Any, set[str]], ...] = (
    ("", "", "", "", set()),
    ("submission_platform", "96xDGX H100", "", "", {"counts"}),
    ("submission_platform", "512xDGX H100", "", "", set()),
    ("submission_platform", "Gaudi2-512", "", "", {"accelerator_maker"}),
    ("submission_platform", "64xDGX H200", "", "", {"accelerator_model"}),
    ("submission_platform", "64xSUBMISSION_PLATFORM_PLACEHOLDER", "", "", {"placeholders"}),
    ("submission_platform", ["x"], "", "", set()),
    ("submission_org", "Acme Inc.", "", "", set()),
    ("submission_org", "NVIDIA", "", "", {"other_submitter"}),
    ("submission_org", "SUBMISSION_ORG_PLACEHOLDER", "", "", {"placeholders"}),
    ("submission_status", "cloud", "", "", {"status_place"}),
    ("submission_status", "research", "", "", {"status_class"}),
    ("submission_status", "preview", "", "", {"status_class"}),
    ("submission_status", "onprem", "status", "Available cloud", {"status_place"}),
    ("", "", "number_of_nodes", "32", {"counts", "counts_in_folder"}),
    ("", "", "accelerator_model_name", "NVIDIA B200", {"accelerator_model"}),
    ("", "", "accelerator_model_name", "TPU-v5p", {"accelerator_maker"}),
    ("", "", "system_name", "Gaudi2 cluster", {"accelerator_maker"}),
    ("", "", "submitter", "Other", {"other_submitter"}),
    ("", "", "number_of_nodes", "-3", set()),
)


@pytest.mark.parametrize(("key", "value", "field", "entry", "rules"), CASES)
def test_log_against_description_and_folder(
    key: str, value: Any, field: str, entry: Any, rules: set[str], tmp_path: Path
) -> None:
    package = write_package(tmp_path)
    log = Log(records(SEEDS[1]))
    if key:
        log.set(key, value)
    (package / LOG).write_text(as_text(log.records))
    path = package / "systems" / f"{SYSTEM}.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, field: entry} if field else content, indent=1))
    (one,) = SubmissionPackage(package, "4.1.0").sets
    found = {name: list(getattr(naming_rules, name)(one)) for name in RULES}
    assert {name for name, deviations in found.items() if deviations} == rules
    if key and rules and not field:
        assert {at.path.name for at in found[rules.copy().pop()]} == {"result_1.txt"}


def test_runs_of_two_systems_exchanged(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    for name, nodes, seed in (("acme_n8", "8", 31), ("acme_n16", "16", 41)):
        folder = package / "results" / name / "gpt3"
        folder.mkdir(parents=True)
        log = Log(records(seed))
        log.set("submission_platform", f"{24 - int(nodes)}xACME H100")
        (folder / "result_0.txt").write_text(as_text(log.records))
        text = (package / "systems" / f"{SYSTEM}.json").read_text()
        (package / "systems" / f"{name}.json").write_text(text.replace('"64"', f'"{nodes}"'))
    sets = SubmissionPackage(package, "4.1.0").sets
    assert [len(list(naming_rules.counts(one))) for one in sets] == [1, 0, 1] or [
        len(list(naming_rules.counts(one))) for one in sets if one.name != SYSTEM
    ] == [1, 1]


def test_seeds_of_another_system_and_names_of_the_folder(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    folder = package / "results" / "other" / "gpt3"
    folder.mkdir(parents=True)
    log = Log(records(31))
    log.set("seed", SEEDS[0])
    (folder / "result_0.txt").write_text(as_text(log.records))
    subject = SubmissionPackage(package, "4.1.0")
    (found,) = naming_rules.seeds_across(subject)
    assert found.found == f"seed {SEEDS[0]}, used for {SYSTEM}, too"
    assert list(naming_rules.submitter_folder(subject)) == []
    renamed = package.rename(tmp_path / "NVIDIA")
    (found,) = naming_rules.submitter_folder(SubmissionPackage(renamed, "4.1.0"))
    assert found.found == "submitter 'ACME' in folder 'NVIDIA'"


def test_names_of_published_systems_fit_their_counts() -> None:
    for run in published_traces():
        nodes = run.accelerators // 8 if "TPU" not in run.accelerator else run.accelerators // 4
        allowed = {nodes, run.accelerators, 2 * run.accelerators}
        for name in (run.system, run.platform):
            assert not counts_in(name) or counts_in(name) & allowed, run.name


def test_counts_and_models_in_names() -> None:
    assert counts_in("eos-dfw_n1452_ngc24.04_nemo") == {1452}
    assert counts_in("1536xBM.GPU.H100.8") == {1536}
    assert counts_in("cloud-tpu-v5p-1024-maxtext") == {1024}
    assert counts_in("DGX H100") == counts_in("NVIDIA H100-SXM5-80GB") == set()
    assert models_in("dgxh100_n64") == {"H100 SXM"}
    assert models_in("a machine") == set()
