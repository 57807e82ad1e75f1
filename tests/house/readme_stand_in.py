"""Stands in for ``python`` and ``sbatch``, and for a run, where the README's commands are walked at a small size.

What is big is small, made up or only parsed: the downloads, the sums of the data, the search, the GPU, the runs.
Everything else runs as it stands on the page, in a checkout; what stands in lies beside it.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import NoReturn

MADE_UP_RUN = "made-up-run"
"""First word of a made-up run, among those of Python."""


def python(words: Sequence[str]) -> None:
    """Run ``python WORDS``, or what stands in for it."""
    program, name, options = words[1], words[2], list(words[3:])
    if words[0] == MADE_UP_RUN:
        made_up_run(words[1:])
        return
    if program == "pip":
        return
    if program == "benchmark.launch":  # the processes need devices
        words = ["-m", "benchmark", *words[words.index("--") + 1 :]]
        name = words[2]
    if name == "fetch":
        fetch(options)
    elif (program, name) == ("checksums", "verify"):
        replace_sums(Path(options[0]), Path(options[options.index("--manifest") + 1]))
    if name in ("plan", "slice", "train", "rehearse") or "--first-contact" in options:
        from benchmark.commands.command_table import parse

        parse(words[2:])  # there is no GPU; 1,536 layouts and ten rehearsals take a while
    elif name != "fetch" and (status := status_of(words[1:])):
        raise SystemExit(status)
    if name == "describe-system":
        fill_in(Path(options[options.index("--output") + 1]))


def status_of(words: Sequence[str]) -> int:
    """Run ``python -m WORDS`` in this process, and return its exit status."""
    from tests.forked import run_module

    try:
        run_module(list(words))
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


def fetch(options: Sequence[str]) -> None:
    """Put the small files where the big ones would come to. With --list the command itself says what it lacks."""
    from data_prep.preparation.artifacts import ARTIFACTS

    listing = [*options, *(["--list"] if "--list" not in options else [])]
    if (listed := status_of(["data_prep", "fetch", *listing])) != 1:
        raise SystemExit(listed or "the files were there already")
    source = options[options.index("--from") + 1] if "--from" in options else "../from_hugging_face"
    output = Path(options[options.index("--output") + 1])
    if "--list" in options:
        return
    if "llama31-dataset" not in options:
        shutil.copytree(source, output, dirs_exist_ok=True)
        return
    for name in ARTIFACTS["llama31-dataset"].files:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(source) / Path(name).name, output / name)


def replace_sums(folder: Path, manifest: Path) -> None:
    """Write the sums of the small files into the list; a name without a file keeps its own."""
    names = [line.split()[1] for line in manifest.read_text().splitlines()]
    sums = {name: md5((folder / name).read_bytes()).hexdigest() for name in names if (folder / name).is_file()}
    manifest.write_text("".join(f"{sums.get(name, '0' * 32)}  {name}\n" for name in names))


def fill_in(description: Path) -> None:
    """Fill in, as a person does, what describe-system has marked, and describe the system of the made-up runs."""
    from benchmark.config.description_fields import MARK
    from tests.benchmark.judging.review.fixture import LLAMA_N1, system_description

    assert MARK in description.read_text()
    content = system_description(LLAMA_N1) if description.name == "dgxh100_n1.json" else system_description()
    description.write_text(json.dumps(content))


def sbatch(words: Sequence[str]) -> NoReturn:
    """Run a job on this machine, where stand_in.sh answers for Slurm."""
    script, *arguments = [word for word in words if not word.startswith("--")]
    job = {
        "SLURM_JOB_ID": "5",
        "SLURM_SUBMIT_DIR": str(Path.cwd()),
        "SLURM_JOB_NODELIST": Path("../answers/nodes").read_text().strip(),
        "SLURM_NTASKS_PER_NODE": "8",
        "SLURMD_NODENAME": "n1",
        "LOG_DIR": str(Path(arguments[0]).resolve()),
        "DRY_RUN": "0",
    }
    os.execve("/bin/bash", ["bash", script, *arguments], {**os.environ, **job})


def made_up_run(words: Sequence[str]) -> None:
    """Write what a run with these options would leave, if it found its data and its checkpoint."""
    import msgspec

    from benchmark.commands.command_table import parse
    from benchmark.commands.run_commands import TrainCommand
    from foundation.git import commit_of
    from tests.benchmark.judging.review.fixture import LLAMA_N1, ORG, SEEDS, START_MS, as_text, records, records_of

    run_dir = ["--run-dir", words[words.index("--run-dir") + 1]]  # of the launcher, or of the command
    command = parse([*words[words.index("train") :], *run_dir])
    assert isinstance(command, TrainCommand)
    config = command.config
    require_inputs(words)
    if config.benchmark.name == "llama31_8b":
        made = replace(LLAMA_N1, benchmark=config.benchmark, system=config.system, evaluations=14)
        log = as_text(records_of(made, made.seeds[config.result_number]))
    else:
        log = as_text(records(SEEDS[config.result_number], batch_size=config.benchmark.global_batch_size))
    log = log.replace(f'"{ORG}"', json.dumps(config.logging.submission_org))
    config.run_dir.mkdir(parents=True, exist_ok=True)
    (config.run_dir / f"result_{config.result_number}.txt").write_text(log)
    (config.run_dir / "config.json").write_bytes(msgspec.json.encode(config, enc_hook=str))
    environment = {"time_ms": START_MS, "key": "environment", "value": {"commit": commit_of()}}
    (config.run_dir / "events.jsonl").write_text(json.dumps(environment) + "\n")


def require_inputs(words: Sequence[str]) -> None:
    """Find the datasets and the checkpoint that a command names."""
    from benchmark.config.benchmarks import BENCHMARKS

    (benchmark,) = {BENCHMARKS[word] for word in words if word in BENCHMARKS}
    folder, names = Path(words[words.index("--data-folder") + 1]), benchmark.token_files
    for name in (*names.training, names.validation):
        assert (folder / f"{name}.idx").stat().st_size and (folder / f"{name}.bin").stat().st_size
    if benchmark.start_samples:
        checkpoint = Path(words[words.index("--checkpoint") + 1])
        assert (checkpoint / "metadata.json").is_file(), checkpoint


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sbatch(sys.argv[1:])
