"""Code from a run's folder runs only if nobody but this user and root may write it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmark.launch.slurm.stand_in_job import Job

NOBODY = 65534


def chmod(mode: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(mode)


def give_away(path: Path) -> None:
    try:
        os.chown(path, NOBODY, NOBODY)
    except PermissionError:
        pytest.skip("needs root")


def lend_to_group(path: Path) -> None:
    """Let a group write that is nobody's own one."""
    if os.geteuid() == 0:
        os.chown(path, 0, NOBODY)
    else:
        pytest.skip("needs root")
    path.chmod(0o770)


def link(path: Path) -> None:
    """Exchange a file or a folder for a link to a copy of it."""
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


SPOILT: list[tuple[str, Callable[[Path], None]]] = [
    ("snapshot/code/environment.sh", give_away),
    ("snapshot/code/environment.sh", chmod(0o646)),
    ("snapshot/code/benchmark/launch/__main__.py", give_away),
    ("snapshot/code/benchmark/launch/__main__.py", link),
    ("snapshot/code/benchmark/launch", chmod(0o757)),
    ("snapshot/code/benchmark/launch", lend_to_group),
    ("snapshot/code/benchmark", link),
    ("snapshot/code", give_away),
    ("snapshot/code", link),
    ("snapshot", chmod(0o777)),
    ("snapshot", link),
    (".", give_away),
    (".", lend_to_group),
    (".", chmod(0o777)),
    ("..", chmod(0o777)),
    ("..", lend_to_group),
]


@pytest.fixture(scope="module")
def first_job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    """A run whose copy of the code says so when bash or Python reads it, and a copy of all its files."""
    job = Job(tmp_path_factory.mktemp("trust") / "job")
    job.log_dir = job.folder / "team" / "log"
    assert job.run().returncode == 0
    code = job.log_dir / "snapshot" / "code"
    with (code / "environment.sh").open("a") as script:
        script.write("\necho the copy in bash\n")
    with (code / "benchmark" / "launch" / "__init__.py").open("a") as script:
        script.write("\nprint('the copy in Python')\n")
    job.begin_again()
    return job, shutil.copytree(job.folder, job.folder.with_name("copy"), symlinks=True)


@pytest.fixture
def begun(first_job: tuple[Job, Path]) -> Job:
    """The run as it was after its first job, at the same place."""
    job, copy = first_job
    shutil.rmtree(job.folder)
    shutil.copytree(copy, job.folder, symlinks=True)
    return job


CASES = [(name, spoil, "1") for name, spoil in SPOILT] + [(*SPOILT[number], "0") for number in (1, 3, 5, 8, 11, 14)]
"""A dry run decides for each as a job does, in bash; a job decides again in Python, as ``distrust`` here for each."""


@pytest.mark.parametrize(
    ("name", "spoil", "dry_run"), CASES, ids=[f"{name}-{number}" for number, (name, *_) in enumerate(CASES)]
)
def test_code_that_others_may_write_does_not_run(
    begun: Job, name: str, spoil: Callable[[Path], None], dry_run: str
) -> None:
    checkout, code = begun.folder / "checkout", begun.log_dir / "snapshot" / "code"
    spoil(begun.log_dir / name)
    done = begun.run(DRY_RUN=dry_run, COM_DIR=str(begun.folder))
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    assert "the copy" not in output
    assert f"so {code} does not run; the code of {checkout} does" in output
    assert f"{code}/" not in "".join(begun.calls("srun")[1:])
    if dry_run == "0":
        assert (
            f"code: {checkout}, commit unknown; the run's copy does not run, for others may write "[:90] in done.stdout
        )
        assert len(begun.attempts()) == 2


def test_code_of_a_private_folder_runs(begun: Job) -> None:
    shutil.rmtree(begun.folder / "checkout")
    begun.log_dir.chmod(0o755)
    begun.log_dir.parent.chmod(0o1777)  # as /tmp
    done = begun.run(SLURM_RESTART_COUNT="1")
    assert done.returncode == 0, done.stderr
    assert "the copy in bash" in done.stdout and "the copy in Python" in done.stdout


def test_run_begun_in_a_shared_folder_takes_the_repository(job: Job) -> None:
    job.log_dir.mkdir()
    job.log_dir.chmod(0o777)
    done = job.run()
    assert done.returncode == 0, done.stderr
    assert f"the run's copy does not run, for others may write {job.log_dir}" in done.stdout
    assert (job.log_dir / "snapshot" / "code" / "environment.sh").is_file()
    assert job.log_dir.stat().st_mode & 0o777 == 0o777  # a folder that exists keeps its mode


@pytest.mark.parametrize(("mode", "mask"), [(None, "0022"), (0o755, "0022"), (0o777, "0002")])
def test_job_writes_for_its_group_only_where_the_folder_is_shared(job: Job, mode: int | None, mask: str) -> None:
    if mode is not None:
        job.log_dir.mkdir()
        job.log_dir.chmod(mode)
    job.answer(during=f"umask >{job.folder}/mask")
    earlier = os.umask(0o002)
    try:
        assert job.run().returncode == 0
    finally:
        os.umask(earlier)
    assert (job.folder / "mask").read_text().strip() == mask
    assert job.log_dir.stat().st_mode & 0o777 == (mode or 0o750)
