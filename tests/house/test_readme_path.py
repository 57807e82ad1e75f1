"""README's commands run one after the other as they stand on the page, with stand-ins for what is big."""

import gzip
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.benchmark.launch.slurm.stand_in_job import COMMANDS, STAND_IN
from tests.forked import run_forked
from tests.house.readme_stand_in import python, require_inputs
from tests.house.test_papers import command_blocks
from tests.support import REPOSITORY, command

STANDS_IN = Path(__file__).with_name("readme_stand_in.py")
MODEL = ["--layers", 2, "--hidden", 20, "--heads", 2, "--vocab", 510, "--positions", 30]
"""8 divides none, which makes few chunks."""
BLOCKS = command_blocks((REPOSITORY / "README.md").read_text())


@pytest.fixture(scope="module")
def small_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the downloads bring, small, under their names; made by the commands of the rehearsal."""
    folder = tmp_path_factory.mktemp("small")
    corpus, theirs, ours = folder / "corpus", folder / "mlcommons", folder / "from_hugging_face" / "en"

    def make(*words: object) -> None:
        done = command(*words)
        assert done.returncode == 0, done.stderr

    make("data_prep", "synthetic-corpus", "--output", corpus, "--seed", 1)
    tokenizer = theirs / "tokenizers" / "c4_spm" / "sentencepiece.model"
    tokenizer.parent.mkdir(parents=True)
    shard = sorted((corpus / "en").glob("*.json.gz"))[0]
    make("data_prep", "train-tokenizer", "--input", shard, "--output", tokenizer, "--vocab-size", 400)
    make("checkpoint_convert", "random-paxml", "--output", theirs / "checkpoint_00004000", "--seed", 1, *MODEL)
    shutil.copy(corpus / "c4-validation.json", theirs / "c4-validation_24567exp.json")
    ours.mkdir(parents=True)
    documents = gzip.decompress(shard.read_bytes()).splitlines(keepends=True)
    for number in range(768, 1024):
        packed = gzip.compress(documents[number % len(documents)])
        (ours / f"c4-train.{number:05d}-of-01024.json.gz").write_bytes(packed)
    return folder


def serve(folder: Path) -> None:
    """Run what the walk's ``python`` is asked, each forked from a process that has imported it all."""
    while True:
        words = (folder / "asked").read_text().splitlines()  # waits for the next command
        done = run_forked(python, words, folder=folder / "checkout", timeout=120)
        with (folder / "said").open("a") as said:
            said.write(f"{' '.join(words)[:200]}\n{done.stdout}{done.stderr}")
        (folder / "status").write_text(str(done.returncode))


def walk(folder: Path, small_inputs: Path, blocks: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run the blocks in one shell, in what looks like a clone."""
    checkout, programs, answers = folder / "checkout", folder / "bin", folder / "answers"
    for path in (checkout, programs, answers, checkout / "tests"):
        path.mkdir()
    for name in (
        "benchmark",
        "checkpoint_convert",
        "data_prep",
        "model",
        "foundation",
        "run_gpt3.sh",
        "environment.sh",
    ):
        (checkout / name).symlink_to(REPOSITORY / name)
    shutil.copytree(REPOSITORY / "checksums", checkout / "checksums")
    shutil.copy(REPOSITORY / ".gitignore", checkout)
    someone = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    for words in (["init", "-q"], ["add", "--all"], [*someone, "commit", "-q", "-m", "the code"]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    (checkout / "tests" / "run.sh").write_text("#!/bin/sh\n")  # it is what runs this
    (checkout / "tests" / "run.sh").chmod(0o755)
    shutil.copytree(small_inputs / "mlcommons", checkout / "mlcommons")
    (folder / "from_hugging_face").symlink_to(small_inputs / "from_hugging_face")
    for name in COMMANDS:
        (programs / name).symlink_to(STAND_IN)
    (programs / "sbatch").unlink()
    for name, text in {
        "sbatch": f'exec {sys.executable} {STANDS_IN} sbatch "$@"',
        "python": f'printf "%s\\n" "$@" >{folder}/asked; exit "$(cat {folder}/status)"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    for name in ("asked", "status"):
        os.mkfifo(folder / name)
    threading.Thread(target=serve, args=[folder], daemon=True).start()
    nodes = [f"n{number}" for number in range(1, 65)]
    for name, text in {
        "left": "UNLIMITED",
        "states": "\n".join(f"{node} allocated" for node in nodes),
        "nodes": ",".join(nodes),
        "interpreter": "nodes 64\ndevice cuda",
        "interpreter_status": "0",
        "statuses": "0",
        "during": f'"$REAL_PYTHON" {STANDS_IN} run "$@" || exit 1',
    }.items():
        (answers / name).write_text(f"{text}\n")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MASTER"))}
    variables |= {"PATH": f"{programs}:{os.environ['PATH']}", "STAND_IN": str(answers), "REAL_PYTHON": sys.executable}
    variables |= {"DRY_RUN": "1"}
    script = "set -euo pipefail\n" + "".join(f"echo '=== block {n}' >&2\n{block}" for n, block in enumerate(blocks))
    return subprocess.run(
        ["bash", "-c", script], cwd=checkout, env=variables, capture_output=True, text=True, timeout=250, check=False
    )


@pytest.mark.slow
def test_commands_run_one_after_the_other(tmp_path: Path, small_inputs: Path) -> None:
    done = walk(tmp_path, small_inputs, BLOCKS)
    assert done.returncode == 0, (tmp_path / "said").read_text()[-3000:] + done.stdout[-3000:] + done.stderr[-3000:]
    calls = (tmp_path / "answers" / "calls").read_text().splitlines()
    for name, times in (("preflight", 1), ("evaluate", 1), ("train", 3)):
        called = [call for call in calls if call.startswith("srun ") and f" -m benchmark {name} " in call]
        assert len(called) == times
        for call in called:
            require_inputs(call.split())
    made = {path.name for path in (tmp_path / "checkout").iterdir()}
    assert made >= {"report.html", "ACME", "ckpt4000_bf16.manifest.json"}
