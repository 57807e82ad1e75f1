"""The commands of docs/llama31_8b.md run one after the other; downloads, devices and the ten runs have stand-ins."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from benchmark.commands.command_table import parse
from benchmark.commands.run_commands import TrainCommand
from benchmark.config.run_config import RunConfig
from benchmark.judging.results.subjects import SubmissionPackage
from tests.house.page_walk import make_checkout, make_program, walk
from tests.house.readme_stand_in import MADE_UP_RUN, require_inputs
from tests.house.test_papers import command_blocks
from tests.support import REPOSITORY, command

BLOCKS = command_blocks((REPOSITORY / "docs" / "llama31_8b.md").read_text())
CLONE = "gpt3-training-benchmark"
GPUS = 'for number in {0..7}; do echo "GPU $number: a stand-in"; done'
JOB_SCRIPT = f"""
if [[ ${{TRAIN_OPTIONS:-}} =~ --result-number\\ ([1-8])$ ]]; then
  number=${{BASH_REMATCH[1]}}
  line=$(sed "s|/logs/0 |/logs/$number |g; s|--result-number 0|--result-number $number|" ../line_of_run_0)
else
  line=$(DRY_RUN=1 {REPOSITORY}/run_gpt3.sh "$@") || exit
fi
if [[ ${{TRAIN_OPTIONS:-}} == *--result-number\\ 0 ]]; then echo "$line" >../line_of_run_0; fi
echo "$line" >>../lines
eval "words=($line)"
# a run of the loop has a number; it is made up
if [[ ${{TRAIN_OPTIONS:-}} == *--result-number* ]]; then python {MADE_UP_RUN} "${{words[@]}}"; fi
"""
"""The script prints the lines of the rehearsal, of runs 0 and 9 of the ten and of what is outside the loop; those of
runs 1 to 8 are run 0's with another number."""
SBATCH = f"""
[[ $1 == --nodes=* ]] || exit 1
export SLURM_JOB_ID=5 SLURM_JOB_NUM_NODES=${{1#--nodes=}} SLURM_SUBMIT_DIR={REPOSITORY}
shift
exec "./$@"
"""


@pytest.fixture(scope="module")
def token_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the download brings, with small token files under the published names."""
    folder = tmp_path_factory.mktemp("small")
    corpus, tokenizer = folder / "corpus", folder / "sentencepiece.model"
    dataset = folder / "llama3_1_8b_preprocessed_c4_dataset"

    def make(*words: object) -> None:
        done = command(*words)
        assert done.returncode == 0, done.stderr

    make("data_prep", "synthetic-corpus", "--output", corpus, "--seed", 1)
    shard = sorted((corpus / "en").glob("*.json.gz"))[0]
    make("data_prep", "train-tokenizer", "--input", shard, "--output", tokenizer, "--vocab-size", 400)
    dataset.mkdir()
    texts = {"c4-train.en_6_text_document": shard, "c4-validation-91205-samples.en_text_document": shard}
    for name, text in texts.items():
        prefix = dataset / name
        make("data_prep", "preprocess", "--input", text, "--tokenizer", tokenizer, "--output-prefix", prefix)
    return dataset


def training_of(line: str) -> RunConfig:
    """Return the configuration of the training that a printed line starts."""
    words = shlex.split(line)
    require_inputs(words)
    parsed = parse(words[words.index("train") :])
    assert isinstance(parsed, TrainCommand)
    return parsed.config


@pytest.mark.slow
def test_commands_of_the_page_run_one_after_the_other(tmp_path: Path, token_files: Path) -> None:
    checkout = tmp_path / CLONE
    make_checkout(checkout)
    shutil.copytree(token_files, checkout / token_files.name)
    make_program(checkout / "run_gpt3.sh", JOB_SCRIPT)
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "activate").touch()
    programs = {
        "git": f'if [[ $1 == clone ]]; then [[ $3 == {CLONE} ]]; else exec {shutil.which("git")} "$@"; fi',
        "nvidia-smi": GPUS,
        "sbatch": SBATCH,
        "docker": f'printf "%s\\n" "$*" >>{tmp_path}/docker',
    }
    done = walk(tmp_path, checkout, BLOCKS, programs, {})
    said = (tmp_path / "said").read_text()
    assert done.returncode == 0, said[-3000:] + done.stdout[-3000:] + done.stderr[-3000:]
    rehearsal, *lines = (tmp_path / "lines").read_text().splitlines()
    assert " -m benchmark rehearse rehearsal_llama " in rehearsal
    assert [line.startswith("srun ") for line in lines] == [False, False, True, True] + 10 * [False]
    configs = [training_of(line) for line in lines]
    assert [(config.benchmark.name, config.system.name, config.system.nodes) for config in configs] == [
        ("llama31_8b", "dgxh100_n8" if number == 3 else "dgxh100_n1", 8 if number == 3 else 1) for number in range(14)
    ]
    assert [config.result_number for config in configs[4:]] == [*range(10)]
    assert {config.logging.submission_org for config in configs} == {"ACME"}
    build, run = (tmp_path / "docker").read_text().splitlines()
    image = re.fullmatch(r"build --tag (\S+) \.", build)
    assert image is not None and f" {image[1]} COMMAND" in run and f"--volume {checkout}:{checkout} " in run
    package = SubmissionPackage(checkout / "ACME", "6.1.0")
    assert [(results.judged.name, len(results.files)) for results in package.sets] == [("llama31_8b", 10)]
    assert (checkout / "report.html").stat().st_size > 50_000
