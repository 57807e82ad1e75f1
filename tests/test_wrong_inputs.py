"""Wrong inputs of run_gpt3.sh and of the programs: one line with value, expectation and remedy; nothing is written."""

import contextlib
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.launch.__main__ import main as launch
from tests.support import REPOSITORY, assert_refused, command_here

JOB = "run_gpt3.sh logs - none"
"""A job: its variables are those of ``variables`` below, and those before this line in a row of the table."""
CHECK = "check logs - none"
"""The same, of whose script only the first command is called: the launcher's check of variables, in this process."""

WRONG_INPUTS = [
    # the rehearsal
    ("SEED=abc run_gpt3.sh", "SEED=abc: expected a whole number from 0 to 4294967295"),
    ("MASTER_PORT=x check", "MASTER_PORT=x: expected a whole number from 1 to 65535"),
    ("PRECISION=fp16 check", "PRECISION=fp16: expected bf16, fp32 or fp8"),
    ("DRY_RUN=true check", "DRY_RUN=true: expected 1 or 0"),
    ("BENCHMARK=rehearsal_lama run_gpt3.sh", "unknown rehearsal 'rehearsal_lama'; did you mean rehearsal_llama?"),
    ("BENCHMARK=gpt3_175b run_gpt3.sh", "unknown rehearsal 'gpt3_175b'; there are rehearsal, rehearsal_llama"),
    ("C4_PATH=/nowhere check", "C4_PATH=/nowhere: expected en/c4-train.*.json.gz and c4-validation*.json in it"),
    ("WORK_DIR=text run_gpt3.sh", "/text: a file; expected a folder"),
    ("WORK_DIR=text/x run_gpt3.sh", "/text is a file; expected a folder"),
    ("TORCH_BUILD=gpu run_gpt3.sh", "TORCH_BUILD=gpu: expected cpu or cuda"),
    # a job
    ("run_gpt3.sh logs", "expected no arguments (the rehearsal) or LOG_DIR BPE_DIR [COM_DIR] CONTAINER, got 1"),
    ("run_gpt3.sh text - none", "/text: a file; expected a folder"),
    ("run_gpt3.sh '' - none", "LOG_DIR '', CONTAINER 'none': expected the run's folder, and an image or none"),
    ("check text/logs - none", "/text is a file; expected a folder"),
    ("check logs - ./empty", "/empty: a folder; CONTAINER is an image's file, docker://"),
    ("check logs - None", "None: expected none, in small letters"),
    ("check logs - ./image.sqsh", "/image.sqsh: no such file; CONTAINER is an image's file, docker://"),
    (
        "DRY_RUN=0 run_gpt3.sh logs - image",
        "image: without Slurm the job runs on this machine and in no container; say",
    ),
    (f"DRY_RUN=yes {CHECK}", "DRY_RUN=yes: expected 1 or 0"),
    (f"CHAIN=on {JOB}", "CHAIN=on: expected 1 or 0"),
    (f"NODES=many {CHECK}", "NODES=many: expected a whole number from 1"),
    (f"NODES=3 {JOB}", "the run takes 3 nodes, and its system has 64: sbatch --nodes=64, or name a SYSTEM"),
    (f"COM_DIR= {CHECK}", "COM_DIR is not set: the folder with the token files"),
    (f"COM_DIR=/nowhere {CHECK}", "COM_DIR=/nowhere: no such folder; expected the folder with the token files"),
    (
        f"COM_DIR=empty {JOB}",
        "c4_en_6_c4_spm_text_document.idx: no such file; COM_DIR is the folder with the benchmark's",
    ),
    (f"EXTERNAL_MODEL_CHECKPOINT_DIR=text {CHECK}", "/text: a file; expected the folder of the converted"),
    (f"GBS=abc {CHECK}", "GBS=abc: expected a whole number from 1"),
    (f"GBS=7 {JOB}", "global_batch_size 7 is not a multiple of micro_batch_size 2 x 16 data-parallel devices; use"),
    (f"LR=fast MIN_LR=1 {CHECK}", "LR=fast: expected a number above 0, such as 2e-5"),
    (f"LR=1e-5 {CHECK}", "LR and MIN_LR go together"),
    (f"MASTER_PORT=99999 {CHECK}", "MASTER_PORT=99999: expected a whole number from 1 to"),
    (f"EXIT_MARGIN_MINUTES=1.5 {CHECK}", "EXIT_MARGIN_MINUTES=1.5: expected a whole number from 0 to"),
    (f"USE_BF16= SEED=x {CHECK}", "SEED=x: expected a whole number"),  # no warning
    (f"USE_BF16=bf16 {CHECK}", "USE_BF16=bf16: expected true or false"),
    (f"PRECISION=fp8 {CHECK}", "PRECISION=fp8, but USE_BF16=true asks for bf16; leave one of them out"),
    (f"BENCHMARK=llama3_8b {JOB}", "unknown benchmark 'llama3_8b'; did you mean llama31_8b?"),
    (
        f"BENCHMARK=llama31_8b {JOB}",
        "llama31_8b has no initial checkpoint, it starts at step 0 with random weights; leave",
    ),
    (
        f"BENCHMARK=llama31_8b EXTERNAL_MODEL_CHECKPOINT_DIR= NODES=64 {JOB}",
        "the run takes 64 nodes, and its system has 1: sbatch --nodes=1, or name a SYSTEM",
    ),
    (f"SYSTEM=foo {JOB}", "unknown system 'foo'; there are dgxh100_n64"),
    (
        f"SYSTEM=none.toml {JOB}",
        "/none.toml: No such file or directory; expected the fields of a system, as docs/planning",
    ),
    (f"COMMAND=evalute {CHECK}", "COMMAND=evalute: expected train, evaluate or preflight"),
    (f"MASTER_ADDR='a b' {CHECK}", "MASTER_ADDR=a b: expected the name or address of a machine"),
    (
        f"CUDA_DEVICE_MAX_CONNECTIONS=all {CHECK}",
        "CUDA_DEVICE_MAX_CONNECTIONS=all: expected a whole number from 1 to 32",
    ),
    (f"SNAPSHOT_FILES=none.py {CHECK}", "/none.py: no such file; expected files of the repository"),
    (f"EXTERNAL_MODEL_CHECKPOINT_DIR=empty {JOB}", "/empty: not a Megatron zarr checkpoint (no metadata.json in it)"),
    (f"COMMAND=evaluate EXTERNAL_MODEL_CHECKPOINT_DIR= {JOB}", "EXTERNAL_MODEL_CHECKPOINT_DIR is not set: the conv"),
    (f"SEED=2 TRAIN_OPTIONS='--seed 1' {CHECK}", "TRAIN_OPTIONS: --seed is set by SEED; leave one of them out"),
    (f"TRAIN_OPTIONS=--foo {JOB}", "unknown option --foo (see --help)"),
    (f"SLURM_JOB_ID=7 {JOB}", "SLURM_JOB_ID=7, but SLURM_SUBMIT_DIR, which Slurm sets too, is not set"),
    (f"SLURM_JOB_ID=7 SLURM_SUBMIT_DIR=/ {JOB}", "/ is not the repository; submit from its folder"),
    # benchmark: its commands, and names
    ("benchmark trian", "unknown command 'trian'; did you mean train? There are train, evaluate"),
    ("benchmark --completion zsh", "--completion zsh: expected --completion bash"),
    ("benchmark train", "which benchmark? One of gpt3_175b, rehearsal"),
    ("benchmark train rehearsal", "--train-data-path is missing: one dataset prefix, or weights and prefixes in turn"),
    ("benchmark train rehearsal --run-dir text", "--run-dir text: a file; expected a folder"),
    ("benchmark train gpt3_175B", "unknown benchmark 'gpt3_175B'; did you mean gpt3_175b?"),
    ("benchmark train llama31_8B", "unknown benchmark 'llama31_8B'; did you mean llama31_8b?"),
    ("benchmark train gpt3_175b --system", "--system: expected a name, one of dgxh100_n64"),
    ("benchmark train gpt3_175b --system laptop", "unknown system 'laptop'"),
    ("benchmark train gpt3_175b --system=cpu_p", "unknown system 'cpu_p'; did you mean cpu_p"),
    ("benchmark rehearse foo", "unknown rehearsal 'foo'; there are rehearsal, rehearsal_llama"),
    ("benchmark preflight --seed 3", "--seed is an option of a run: which benchmark? preflight BENCHMARK --seed"),
    # the form of options
    ("benchmark train gpt3_175b --gbs 2048", "unknown option --gbs"),
    ("benchmark train rehearsal --sed 4", "unknown option --sed; did you mean --seed? (see --help)"),
    ("benchmark train rehearsal --seed=1.5", "--seed 1.5: expected a whole number (see --help)"),
    ("benchmark train rehearsal --seed --json", "--seed: expected a whole number, got nothing (see --help)"),
    ("benchmark train gpt3_175b --global-batch-size many", "--global-batch-size many: expected a whole number"),
    ("benchmark train rehearsal --time-limit-s soon", "--time-limit-s soon: expected a number (see --help)"),
    ("benchmark train rehearsal --wandb ofline", "--wandb ofline: expected off, online or offline (see --help)"),
    ("benchmark train rehearsal --save_at 1 b", "--save-at b: expected a whole number (see --help)"),
    ("benchmark train rehearsal --train-data-path", "--train-data-path: expected a text, got nothing (see --help)"),
    ("benchmark train rehearsal --no-watchdog=1", "--no-watchdog=1: --no-watchdog takes no value (see --help)"),
    ("benchmark train rehearsal extra", "unexpected 'extra': it belongs to no option (see --help)"),
    ("benchmark train rehearsal --dry-run yes", "unexpected 'yes': it belongs to no option (see --help)"),
    ("benchmark status --folow", "unknown option --folow; did you mean --follow? (see --help)"),
    ("benchmark package --org A --output P", "--system-json PATH and --results PATH … are missing (see --help)"),
    ("benchmark replay empty", "--steps TEXT is missing: Steps to train again as FIRST:LAST"),
    # values of options
    (
        "benchmark train rehearsal --lr nan",
        "min_lr 0.0001 and lr nan: expected 0 <= min_lr <= lr; change --lr or --min-lr",
    ),
    ("benchmark train rehearsal --save-at 0", "save_at 0: expected steps from 1 on; change --save-at"),
    (
        "benchmark train rehearsal --save-at 3 --save-interval 0",
        "expected steps from 1 on; leave --save-interval 0 out",
    ),
    ("benchmark train rehearsal --profile abc", "profile abc: expected FIRST:LAST, 1 <= FIRST <= LAST, such as 10:12"),
    ("benchmark train gpt3_175b --num-attention-heads 95", "hidden_size 12288 is not a multiple"),
    ("benchmark train llama31_8b --max-steps 0", "max_steps 0: expected at least 1; change --max-steps"),
    ("benchmark train llama31_8b --evaluation-sequences -1", "evaluation_sequences -1: expected at least 1"),
    ("benchmark train llama31_8b --num-key-value-heads 5", "num_attention_heads 32 is not a multiple of"),
    (
        "benchmark train llama31_8b --tensor-parallel 2 --num-key-value-heads 1",
        "tensor_parallel 2 does not divide num_key_value_heads 1",
    ),
    ("benchmark train llama31_8b --checkpoint=C", "--checkpoint: llama31_8b has no initial checkpoint"),
    ("benchmark train llama31_8b --global-batch-size 48", "reference points at 16, 32, 64, 96, 128 only (32 has --lr"),
    (
        "benchmark train llama31_8b --min-lr 4e-4",
        "min_lr 0.0004: the rules of llama31_8b ask for 1/10 of lr 0.0004, which",
    ),
    ("benchmark train llama31_8b --lr=1e-3 --min-lr 4e-5", "1/10 of lr 0.001, which is 0.0001; leave --min-lr out, or"),
    ("benchmark train rehearsal_llama --start_iterations 1", "leave --start-iterations (EXTERNAL_TRAINING_ITERATIONS)"),
    ("benchmark evaluate rehearsal", "--checkpoint is missing: the converted initial checkpoint, or a run's own"),
    ("benchmark evaluate rehearsal --checkpoint empty", "--valid-data-path is missing: one dataset prefix, or weights"),
    ("benchmark rehearse --seed -1", "seed -1: expected 0 to 4294967295; change --seed"),
    (
        "benchmark rehearse --c4-path empty",
        "--c4-path empty: expected en/c4-train.*.json.gz and c4-validation*.json in it",
    ),
    ("benchmark rehearse --package --work-dir text/x", "--work-dir text/x: text is a file; expected a folder"),
    ("benchmark reference-points --seeds -1", "--seeds -1: expected 0 or more"),
    ("benchmark slice llama31_8b --device cpu --output text", "--output text: a file; expected a folder"),
    ("benchmark slice llama31_8b --device cpu --tensor-parallel 7", "hidden_size 4096: expected a multiple of 896"),
    ("benchmark plan gpt3_175b --system cpu_p1 --system h200_n8", "--system h200_n8: another system is named before"),
    ("benchmark train rehearsal --keep-checkpoints 0", "keep_checkpoints 0: expected at least 1; change --keep-ch"),
    ("benchmark train rehearsal --result-number -1", "result_number -1: expected 0 or more; change --result-number"),
    ("benchmark rehearse --package --seed 3", "seeds must differ; leave out --c4-path and --seed"),
    (
        "benchmark reference-points",
        "no run folder given; name folders of finished runs, or say how many to make with --see",
    ),
    ("benchmark replay empty --steps 0:0", "steps '0:0': expected FIRST:LAST, such as 176:192; change --steps"),
    (
        "benchmark slice rehearsal --layers 999 --device cpu",
        "layers 999: expected at most 4, the benchmark's; change --",
    ),
    ("benchmark preflight --first-contact --device cpu --output text", "--output text: a file; expected a folder"),
    ("benchmark plan gpt3_175b --what-if foo", "--what-if foo: expected one of matmul, attention, memory, nvlink"),
    ("benchmark slice gpt3_175b --layers 0 --device cpu", "layers 0: expected at least 1; change --layers"),
    ("benchmark review", "nothing to review; give result files, a run folder or a package (see --help)"),
    ("benchmark review empty", "empty: no result_*.txt there; give a result file, a run folder or a package"),
    (
        "benchmark report nowhere --output R",
        "nowhere: no such file or folder; give a result file, a run folder or a pack",
    ),
    ("benchmark status nowhere", "nowhere: expected the folder of a run, or a folder of such folders"),
    ("benchmark package --org A/B --system-json s.json --results empty --output P", "--org 'A/B': expected letters"),
    # the other programs
    ("data_prep tokenise", "unknown command 'tokenise'; did you mean train-tokenizer? There are plan, fetch"),
    ("data_prep fetch --output text", "--output text: expected a folder, but text is a file; choose another name"),
    ("data_prep fetch --output D --what all", "--what all: expected train, validation-subset, tokenizer, checkpoint"),
    ("data_prep preprocess --input text --tokenizer none --output-prefix X", "none: no such file"),
    (
        "data_prep preprocess --input text --tokenizer zero --output-prefix X",
        "zero: not a SentencePiece model (it is em",
    ),
    (
        "data_prep preprocess --input text --tokenizer text --output-prefix empty/",
        "--output-prefix empty: a folder; expected the beginning of file names, such as empty/c4_text_document",
    ),
    (
        "data_prep preprocess --input text --tokenizer text --output-prefix X --workers 0",
        "--workers 0: expected 1 to 40",
    ),
    (
        "data_prep preprocess --input text --tokenizer text",
        "--output-prefix PATH is missing: Prefix of the dataset to wri",
    ),
    (
        "data_prep preprocess --input text --tokenizer text --output-prefix X",
        "text: not a SentencePiece model; give the benchmark's, or the file that train-tokenizer wrote",
    ),
    ("data_prep fetch --output D --what llama31-dataset --from nowhere", "--from nowhere: no such folder"),
    (
        "data_prep fetch --output D --from empty --revision main",
        "--revision main: is of the Hugging Face dataset; leave",
    ),
    ("data_prep plan --network-mb-per-s 0", "--network-mb-per-s 0: expected more than 0"),
    ("data_prep synthetic-corpus --output C --seed -1", "--seed -1: expected 0 to 18446744073709551615"),
    ("data_prep plan --disk 3", "unknown option --disk; did you mean --disk-mb-per-s? (see --help)"),
    ("data_prep inspect text", "unexpected 'text': it belongs to no option (see --help)"),
    ("data_prep train-tokenizer --input nowhere --output M", "nowhere: no such file"),
    ("data_prep synthetic-corpus --output C --seed 1 --size.shard 3", "--size.shard; did you mean --size.shards?"),
    ("checkpoint_convert convert", "unknown command 'convert'; there are paxml-to-megatron"),
    ("checkpoint_convert plan --heads 4", "unknown option --heads (see --help)"),
    ("checkpoint_convert inspect empty", "empty: holds no zarr arrays, no *.safetensors and no .metadata of a PyTorch"),
    (
        "checkpoint_convert paxml-to-megatron --input empty --output O --dtype fp16",
        "--dtype fp16: expected fp32 or bf16",
    ),
    (
        "checkpoint_convert megatron-to-paxml --input empty --output O",
        "empty: not a Megatron zarr checkpoint (no metada",
    ),
    ("checkpoint_convert to-torch-dist --input empty --output O --workers 0", "--workers 0: expected 1 to 4096"),
    (
        "checkpoint_convert random-paxml --output O",
        "--seed N, --layers N, --hidden N, --heads N and --vocab N are missing",
    ),
    ("checksums sign", "unknown command 'sign'; there are create, verify"),
    ("checksums create text --output L", "text: a file; expected a folder"),
    ("checksums create empty --output L", "empty: holds no file; expected the folder of a dataset or checkpoint"),
    ("checksums verify empty --manifest nowhere", "nowhere: no such file; expected a list of MD5 sums"),
    ("checksums verify empty", "--manifest PATH is missing: List of paths relative to the folder, as GNU's md5sum"),
    (
        "checksums verify empty --manifest text",
        "text:1: expected '<md5> <path>' or 'MD5 (<path>) = <md5>', got 'hello'",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of the names in the table, and with the inputs of a job."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "text").write_text("hello\n")
    (folder / "zero").touch()
    for name in ("empty", "data", "ckpt4000"):
        (folder / name).mkdir()
    (folder / "ckpt4000" / "metadata.json").touch()
    for benchmark in BENCHMARKS.values():
        for name in (*benchmark.token_files.training, benchmark.token_files.validation):
            (folder / "data" / f"{name}.idx").touch()
    return folder


@pytest.fixture
def variables(folder: Path) -> dict[str, str]:
    """Variables of a valid job, which DRY_RUN keeps from starting."""
    folders = {"COM_DIR": str(folder / "data"), "EXTERNAL_MODEL_CHECKPOINT_DIR": str(folder / "ckpt4000")}
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(folder), "DRY_RUN": "1", "USE_BF16": "1", **folders}


def checked(arguments: list[str], folder: Path, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Call the check as ``check_variables`` of run_gpt3.sh does: for a job; without words, for a rehearsal."""
    errors = io.StringIO()
    code = ["--repository", str(REPOSITORY), "--code", str(REPOSITORY), "--folder", str(folder), "--python", "python3"]
    with (
        contextlib.redirect_stderr(errors),
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, variables, clear=True),
    ):
        status = launch(["check", *(["job", *code, "--", *arguments] if arguments else [])])
    return subprocess.CompletedProcess(arguments, status, "", errors.getvalue())


@pytest.mark.parametrize(("line", "message"), WRONG_INPUTS)
def test_a_wrong_input_is_refused_in_one_line(line: str, message: str, folder: Path, variables: dict[str, str]) -> None:
    words = shlex.split(line)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    if words[0] == "check":
        done = checked(words[1:], folder, variables)
    elif words[0] == "run_gpt3.sh":
        script = [str(REPOSITORY / "run_gpt3.sh"), *words[1:]]
        done = subprocess.run(script, cwd=folder, env=variables, capture_output=True, text=True, check=False)
        assert done.stdout == ""
    else:
        done = command_here(*words, folder=folder)
    assert_refused(done, message)
    assert {path.name for path in folder.iterdir()} == {"text", "zero", "empty", "data", "ckpt4000"}
