"""README's commands run one after the other as they stand on the page, with stand-ins for what is big."""

import gzip
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmark.launch.slurm.stand_in_job import COMMANDS, STAND_IN
from tests.house.page_walk import STANDS_IN, make_checkout, walk
from tests.house.readme_stand_in import MADE_UP_RUN, require_inputs
from tests.house.test_papers import command_blocks
from tests.support import REPOSITORY, command

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


def walk_readme(folder: Path, small_inputs: Path) -> "subprocess.CompletedProcess[str]":
    checkout, programs, answers = folder / "checkout", folder / "bin", folder / "answers"
    make_checkout(checkout)
    for path in (programs, answers):
        path.mkdir()
    (checkout / "run_gpt3.sh").symlink_to(REPOSITORY / "run_gpt3.sh")
    shutil.copytree(small_inputs / "mlcommons", checkout / "mlcommons")
    (folder / "from_hugging_face").symlink_to(small_inputs / "from_hugging_face")
    for name in {*COMMANDS} - {"sbatch"}:
        (programs / name).symlink_to(STAND_IN)
    nodes = [f"n{number}" for number in range(1, 65)]
    for name, text in {
        "left": "Unknown",
        "states": "\n".join(f"{node} allocated" for node in nodes),
        "nodes": ",".join(nodes),
        "interpreter": "nodes 64\ndevice cuda",
        "interpreter_status": "0",
        "statuses": "0",
        "during": f'python {MADE_UP_RUN} "$@" || exit 1',
    }.items():
        (answers / name).write_text(f"{text}\n")
    sbatch = {"sbatch": f'exec {sys.executable} {STANDS_IN} "$@"'}
    return walk(folder, checkout, ["cd checkout\n", *BLOCKS], sbatch, {"STAND_IN": str(answers), "DRY_RUN": "1"})


@pytest.mark.slow
def test_commands_run_one_after_the_other(tmp_path: Path, small_inputs: Path) -> None:
    done = walk_readme(tmp_path, small_inputs)
    assert done.returncode == 0, (tmp_path / "said").read_text()[-3000:] + done.stdout[-3000:] + done.stderr[-3000:]
    calls = (tmp_path / "answers" / "calls").read_text().splitlines()
    for name, times in (("preflight", 1), ("evaluate", 1), ("train", 3)):
        called = [call for call in calls if call.startswith("srun ") and f" -m benchmark {name} " in call]
        assert len(called) == times
        for call in called:
            require_inputs(call.split())
    made = {path.name for path in (tmp_path / "checkout").iterdir()}
    assert made >= {"report.html", "ACME", "ckpt4000_bf16.manifest.json"}
