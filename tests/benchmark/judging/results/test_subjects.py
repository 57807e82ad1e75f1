"""What there is to review below the paths given."""

import os
from pathlib import Path

import pytest

from benchmark.judging.results.judged import GPT3, LLAMA8B, LLAMA405B, Judged
from benchmark.judging.results.subjects import ResultSet, SubmissionPackage, find_subjects, is_package, ruleset_for
from foundation.errors import InputError
from tests.benchmark.judging.review.fixture import SYSTEM, records, write_package, write_run

RULESETS: tuple[tuple[str, str | None, tuple[Judged, ...], str], ...] = (
    ("/x/v3.1/Google/results", None, (GPT3,), "3.1.0"),
    ("/x/training_results_v4.0/Google", None, (GPT3,), "4.0.0"),
    ("/x/run", None, (GPT3,), "4.1.0"),
    ("/x/v3.1/Google", "4.0.0", (GPT3,), "4.0.0"),
    ("/x/v5.0/Google", None, (GPT3,), "4.1.0"),  # a folder may have such a name for any reason
    ("/x/training_results_v3.1/v2.0/Google", None, (GPT3,), "3.1.0"),
    ("/x/training_results_v5.1/NVIDIA", None, (LLAMA8B, LLAMA405B), "5.1.0"),
    ("/x/training_results_v5.0/NVIDIA", None, (LLAMA8B, LLAMA405B), "5.0.0"),
    ("/x/run", None, (LLAMA8B,), "6.1.0"),
    ("/x/run", None, (LLAMA405B,), "6.0.0"),
    ("/x/run", None, (LLAMA8B, LLAMA405B), "6.0.0"),
    ("/x/run", None, (), "4.1.0"),  # logs that name no known benchmark
    ("/x/v5.1/run", None, (), "5.1.0"),
)


def test_ruleset_is_the_round_s_in_the_path_or_the_newest() -> None:
    for path, given, benchmarks, due in RULESETS:
        assert ruleset_for(Path(path), given, benchmarks) == due, path
    for ruleset, benchmark, told in (
        ("5.0.0", GPT3, r"--ruleset 5\.0\.0: gpt3 is in 3\.0\.0, .* only"),
        ("4.1.0", LLAMA8B, r"--ruleset 4\.1\.0: llama31_8b is in 5\.1\.0, 6\.0\.0, 6\.1\.0 only"),
        ("6.1.0", LLAMA405B, r"--ruleset 6\.1\.0: llama31_405b is in 5\.0\.0, 5\.1\.0, 6\.0\.0 only"),
    ):
        with pytest.raises(InputError, match=told):
            ruleset_for(Path("/x/v4.0/Google"), ruleset, (benchmark,))


def test_runs_of_several_folders_are_one_result(tmp_path: Path) -> None:
    for number in range(3):
        write_run(tmp_path / f"run_{number}", records(number))
    write_run(tmp_path / "run_3", records(4, batch_size=1536))
    subjects = find_subjects([tmp_path], None)
    assert [(one.name, len(one.files)) for one in subjects if isinstance(one, ResultSet)] == [
        ("3 runs", 3),
        ("run_3/result_0.txt", 1),
    ]

    path = tmp_path / "run_3" / "result_0.txt"
    (alone,) = find_subjects([path, path.parent], None)  # given twice, it counts once
    assert isinstance(alone, ResultSet)
    assert alone.files == [path]


def test_parts_of_a_package(tmp_path: Path) -> None:
    write_package(tmp_path).rename(tmp_path / "OTHER")
    path = write_package(tmp_path)
    packages = [one.path.name for one in find_subjects([tmp_path], None) if isinstance(one, SubmissionPackage)]
    assert packages == ["ACME", "OTHER"]
    (one,) = find_subjects([path / "results" / SYSTEM / "gpt3"], None)
    assert isinstance(one, ResultSet)
    assert one.system is not None
    assert (one.name, one.system.accelerators) == (SYSTEM, 512)
    os.mkfifo(path / "pipe")
    (path / "link").symlink_to("/")
    package = SubmissionPackage(path, "4.1.0")
    assert [one.name for one in package.sets] == [SYSTEM]
    assert [folder.name for folder in package.result_folders] == ["gpt3"]
    assert [description.string("system_name") for description in package.descriptions] == [SYSTEM]
    kinds = {entry.path.name: entry.kind for entry in package.entries}
    assert (kinds["pipe"], kinds["link"], kinds["systems"], kinds["README.md"]) == ("pipe", "link", "folder", "file")
    assert is_package(path)
    assert not is_package(path / "systems")
    (path / "systems" / "loop.json").symlink_to("loop.json")
    (path / "results" / "loop").symlink_to("loop")
    os.mkfifo(path / "results" / SYSTEM / "gpt3" / "result_9.txt")
    (path / "results" / SYSTEM / "gpt3" / "result_8.txt").symlink_to("/dev/zero")
    package = SubmissionPackage(path, "4.1.0")
    assert [len(one.files) for one in package.sets] == [3]
    assert [one.problem for one in package.descriptions] == [None, "Too many levels of symbolic links"]


def test_paths_without_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no result_\*\.txt there; give a result file, a run folder or a package"):
        find_subjects([tmp_path], None)
    with pytest.raises(InputError, match="nowhere: no such file or folder"):
        find_subjects([tmp_path / "nowhere"], None)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: not a regular file"):
        find_subjects([tmp_path / "pipe"], None)


def test_package_of_another_benchmark_or_round_is_no_input_and_is_left_out_of_a_round(tmp_path: Path) -> None:
    ours = write_package(tmp_path / "training_results_v4.1")
    other = tmp_path / "training_results_v4.1" / "OTHER"
    (other / "results" / "s" / "bert").mkdir(parents=True)
    with pytest.raises(InputError, match="results of bert only"):
        find_subjects([other], None)
    assert [one.path for one in find_subjects([ours.parent], None) if isinstance(one, SubmissionPackage)] == [ours]
    later = write_package(tmp_path / "training_results_v5.1")
    with pytest.raises(InputError, match=r"of round 5\.1, and gpt3 is in rounds 3\.0 to 4\.1"):
        find_subjects([later], None)
    (given,) = find_subjects([later], "4.1.0")
    assert given.ruleset == "4.1.0"
    newest = tmp_path / "training_results_v6.1" / "OTHER"
    (newest / "results" / "s" / "llama31_405b").mkdir(parents=True)
    with pytest.raises(InputError, match=r"of round 6\.1, and llama31_405b is in rounds 5\.0 to 6\.0; give --ruleset"):
        find_subjects([newest], None)
