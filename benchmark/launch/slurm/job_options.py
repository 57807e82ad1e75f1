"""The options of a job: its arguments, and its variables, in one table."""

from __future__ import annotations

import math
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmark.config.number_formats import NUMBER_FORMATS, format_by_switch, format_named
from benchmark.launch.keep_running import Refused
from benchmark.run_record.small_files import folder_problem

GPT3 = "gpt3_175b"
FP32_WARNING = """\
warning: USE_BF16 is not set, so the run computes in FP32, as the reference does. Published runs use BF16.
warning: On 512 H100 FP32 takes 100 instead of 63 GiB, more than they have; with --recompute full 55. It takes 2 to
warning: 15 times as long: an H100's peak is 989 TFLOP/s in BF16, 495 in TF32 (NVIDIA's containers), 67 in FP32.
warning: USE_BF16=true for BF16; USE_BF16=false for FP32 without this warning"""
FOLDERS = {
    "COM_DIR": "the folder with the token files",
    "EXTERNAL_MODEL_CHECKPOINT_DIR": "the folder of the converted checkpoint",
}
"""Variables that name folders, and their content."""
SYSTEM_SUFFIX = ".toml"
MOST = 999_999
"""Most of anything that is counted here."""
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class JobOptions:
    """The command of a job, and the way it runs. All paths are absolute."""

    run_dir: Path
    """LOG_DIR, which all nodes share."""
    repository: Path
    """The checkout of the code; the run keeps a copy of it."""
    code: Path
    """The code that runs until there is that copy."""
    python: str
    """Interpreter of the processes."""
    container: str
    """Image for srun --container-image, or "none"."""
    script: tuple[str, ...]
    """Arguments of run_gpt3.sh, for the next job."""
    devices: int
    """Processes on each node."""
    command_options: tuple[str, ...] = ()
    """Options of the command. The first is --run-dir."""
    mounts: Mapping[str, Path] = field(default_factory=dict)
    """Paths that the container sees besides the run's and the code's folder, by their variables."""
    # VARIABLES has the meaning of these
    benchmark: str = GPT3
    command: str = "train"
    nodes: int | None = None
    margin_minutes: int = 15
    chain: bool = False
    chain_options: Sequence[str] = ()
    new_snapshot: bool = False
    snapshot_files: Sequence[str] = ()
    cpu_bind: str = "none"
    address: str | None = None
    port: int | None = None
    dry_run: bool = False
    unasked_fp32: bool = False
    """Whether a run of GPT-3 computes in FP32 because nothing was said."""


@dataclass(frozen=True)
class JobVariable:
    """A variable of run_gpt3.sh, which sets a field of JobOptions, an option of the benchmark's command, or neither."""

    name: str
    meaning: str
    default: str = ""
    """Default, for the help."""
    sets: str = ""
    """Field of JobOptions, or option of the benchmark's command, which begins with --; empty if it sets none."""
    parse: Callable[[str], Any] = field(default=str)
    """Parse the value. Raises ValueError with the expected form."""

    @property
    def option(self) -> str:
        """Option of the benchmark's command; empty if it sets none."""
        return self.sets if self.sets.startswith("--") else ""


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers between bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return parse


def above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:  # nor NaN
        raise ValueError("a number above 0, such as 2e-5")
    return number


def one_of(*names: str) -> Callable[[str], str]:
    """Return a parser of names."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"{', '.join(names[:-1])} or {names[-1]}")
        return text

    return parse


def host_name(text: str) -> str:
    if not re.fullmatch(r"[\w.:%-]+", text):
        raise ValueError("the name or address of a machine")
    return text


def is_one(text: str) -> bool:
    """Parse a switch that "1" turns on."""
    if text not in ("0", "1"):
        raise ValueError("1 or 0")
    return text == "1"


def true_or_false(text: str) -> bool:
    if text.lower() not in YES + NO:
        raise ValueError("true or false")
    return text.lower() in YES


def precision_named(text: str) -> str:
    format_named(text)
    return text


COUNT = whole_number(1, MOST)
FORMATS = "; ".join(f"{name}: {row.meaning}" for name, row in NUMBER_FORMATS.items())
VARIABLES = (
    JobVariable(
        "COM_DIR",
        "folder with c4_en_{6,7,validation_subset}_c4_spm_text_document.{bin,idx}; of Llama 3.1 "
        "c4-{train.en_6,validation-91205-samples.en}_text_document.{bin,idx}",
        "required",
        "--data-folder",
    ),
    JobVariable(
        "EXTERNAL_MODEL_CHECKPOINT_DIR",
        "converted initial checkpoint; may be left out to continue from LOG_DIR; Llama 3.1 has none, and refuses this "
        "variable and the next two",
        sets="--checkpoint",
    ),
    JobVariable(
        "EXTERNAL_TRAINING_ITERATIONS",
        "training steps of that checkpoint",
        "benchmark's: 4000",
        "--start-iterations",
        COUNT,
    ),
    JobVariable(
        "EXTERNAL_GBS", "... at this global batch size", "benchmark's: 1536", "--start-global-batch-size", COUNT
    ),
    JobVariable(
        "USE_BF16", "true: BF16 with FP32 master weights; false: FP32", "true; gpt3_175b: false", parse=true_or_false
    ),
    JobVariable("PRECISION", FORMATS, "what USE_BF16 says", "--precision", precision_named),
    JobVariable(
        "GBS", "global batch size in samples", "benchmark's: 1536; Llama 3.1: 16", "--global-batch-size", COUNT
    ),
    JobVariable(
        "LR", "peak learning rate; GPT-3: with MIN_LR", "2.0e-5; Llama 3.1: by its batch size", "--lr", above_zero
    ),
    JobVariable(
        "MIN_LR", "final learning rate; GPT-3: with LR", "2.0e-6; Llama 3.1: a tenth of LR", "--min-lr", above_zero
    ),
    JobVariable(
        "SEED", "seed of the data order", "drawn from the system's randomness", "--seed", whole_number(0, 2**32 - 1)
    ),
    JobVariable("BENCHMARK", "name in benchmark/config/benchmarks.py", GPT3, "benchmark"),
    JobVariable("SYSTEM", "name in benchmark/config/systems.py", "the benchmark's", "--system"),
    JobVariable(
        "NODES", "nodes of the run, others are spare", "all; up to an eighth beyond SYSTEM are spare", "nodes", COUNT
    ),
    JobVariable(
        "COMMAND",
        "evaluate: log perplexity of the initial checkpoint; preflight: check nodes",
        "train",
        "command",
        one_of("train", "evaluate", "preflight"),
    ),
    JobVariable("TRAIN_OPTIONS", "more options of COMMAND, separated by spaces; paths absolute", parse=str.split),
    JobVariable(
        "EXIT_MARGIN_MINUTES", "save and stop so long before the end", "15", "margin_minutes", whole_number(0, MOST)
    ),
    JobVariable("CHAIN", "1: while this job runs, the next one waits in the queue", "0", "chain", is_one),
    JobVariable(
        "CHAIN_OPTIONS", "more options of sbatch for that one, separated by spaces", "", "chain_options", str.split
    ),
    JobVariable(
        "NEW_SNAPSHOT", "1: run the code as it is now, not as it was when the run began", "0", "new_snapshot", is_one
    ),
    JobVariable(
        "SNAPSHOT_FILES",
        "untracked files that the run needs, separated by spaces",
        "",
        "snapshot_files",
        str.split,
    ),
    JobVariable("CPU_BIND", "srun --cpu-bind", "none: each process keeps to the cores near its GPU", "cpu_bind"),
    JobVariable(
        "CUDA_DEVICE_MAX_CONNECTIONS", "hardware queues of a GPU", "1; on Blackwell unset", parse=whole_number(1, 32)
    ),
    JobVariable("MASTER_ADDR", "where the processes meet", "the first node", "address", host_name),
    JobVariable(
        "MASTER_PORT",
        "port where the processes meet",
        "20000 + a number by job and attempt",
        "port",
        whole_number(1, 65535),
    ),
    JobVariable("DRY_RUN", "1: print what would run, and do nothing", "0", "dry_run", is_one),
)


def job_options(base: JobOptions, folder: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> JobOptions:
    """Return the options of a job by the variables of run_gpt3.sh.

    ``arguments``: LOG_DIR BPE_DIR [COM_DIR] CONTAINER. ``folder``: where relative paths begin. Raises Refused
    for a variable without a valid value.
    """
    texts = {row.name: variables[row.name] for row in VARIABLES if variables.get(row.name)}
    if len(arguments) == 4:
        texts["COM_DIR"] = arguments[2]
    if "COM_DIR" not in texts:
        raise Refused(f"COM_DIR is not set: {FOLDERS['COM_DIR']}")
    if ("LR" in texts) != ("MIN_LR" in texts) and texts.get("BENCHMARK", GPT3) == GPT3:
        raise Refused("LR and MIN_LR go together: the reference derives neither from the other; set both or neither")
    paths = [*FOLDERS, *(["SYSTEM"] if texts.get("SYSTEM", "").endswith(SYSTEM_SUFFIX) else [])]
    mounts = {name: (folder / texts[name]).resolve() for name in paths if name in texts}
    texts.update({name: str(path) for name, path in mounts.items()})
    values = {row.name: _parsed(row, texts[row.name]) for row in VARIABLES if row.name in texts}
    fields = {row.sets: values[row.name] for row in VARIABLES if row.sets and not row.option and row.name in values}
    texts["PRECISION"] = _precision(values, fields.get("benchmark", GPT3))
    options = [word for row in VARIABLES if row.option and row.name in texts for word in (row.option, texts[row.name])]
    more_options = values.get("TRAIN_OPTIONS", ())
    _require_no_repetition(more_options, {row.option: row.name for row in VARIABLES if row.name in values})
    command_options = ("--run-dir", str(base.run_dir), *options, *more_options)
    # GPT-3's reference wants BF16 asked for; who forgot to should not learn it from the bill.
    unasked_fp32 = fields.get("benchmark", GPT3) == GPT3 and not {"USE_BF16", "PRECISION"} & set(values)
    return replace(base, command_options=command_options, mounts=mounts, unasked_fp32=unasked_fp32, **fields)


def require_paths(options: JobOptions) -> None:
    """Raise Refused for folders that are none, for files that are not there, and for an image that is no file."""
    for name, path in options.mounts.items():
        if name in FOLDERS and not path.is_dir():
            raise Refused(f"{name}={path}: {'a file' if path.exists() else 'no such folder'}; expected {FOLDERS[name]}")
    if problem := folder_problem(options.run_dir):
        raise Refused(f"LOG_DIR={options.run_dir}: {problem}")
    for name in options.snapshot_files:
        if not (options.repository / name).is_file():
            raise Refused(
                f"SNAPSHOT_FILES: {options.repository / name}: no such file; expected files of the repository"
            )
    image, expected = options.container, "CONTAINER is an image's file, docker://NAME, or none"
    if image.lower() == "none" != image:
        raise Refused(f"{image}: expected none, in small letters; {expected}")
    if image.startswith(("/", "./", "../")) and not (Path(image).is_file() and os.access(image, os.R_OK)):
        kind = "a folder" if Path(image).is_dir() else "may not be read" if Path(image).exists() else "no such file"
        raise Refused(f"{image}: {kind}; {expected}")


def _require_no_repetition(options: Sequence[str], variables: Mapping[str, str]) -> None:
    """Raise Refused for options of TRAIN_OPTIONS that the job sets itself. ``variables``: those that are set, by their
    options."""
    for flag in (word.partition("=")[0].replace("_", "-") for word in options if word.startswith("--")):
        origin = {"--run-dir": "LOG_DIR", "--nodes": "NODES", **variables}.get(flag)
        if origin is not None:
            raise Refused(f"TRAIN_OPTIONS: {flag} is set by {origin}; leave one of them out")


REHEARSAL_VARIABLES = ("PRECISION", "SEED", "MASTER_PORT", "DRY_RUN")
"""Variables of the table that the rehearsal has, too."""


def check_rehearsal(variables: Mapping[str, str]) -> None:
    """Raise Refused for a variable of the rehearsal without a valid value."""
    for row in VARIABLES:
        if row.name in REHEARSAL_VARIABLES and variables.get(row.name):
            _parsed(row, variables[row.name])
    text = variables.get("C4_PATH", "")
    if text and not (any(Path(text).glob("en/c4-train.*.json.gz")) and any(Path(text).glob("c4-validation*.json"))):
        raise Refused(f"C4_PATH={text}: expected en/c4-train.*.json.gz and c4-validation*.json in it")
    work = Path(variables.get("WORK_DIR") or ".")
    if problem := folder_problem(work):
        raise Refused(f"WORK_DIR={work}: {problem}")


def _precision(values: Mapping[str, Any], benchmark: str) -> str:
    """Return the number format that PRECISION or USE_BF16 asks for, or the benchmark's. Raises Refused if the two
    contradict each other."""
    switched = format_by_switch(values.get("USE_BF16", benchmark != GPT3))
    precision = str(values.get("PRECISION", switched))
    if "USE_BF16" in values and precision != switched:
        value = str(values["USE_BF16"]).lower()
        raise Refused(f"PRECISION={precision}, but USE_BF16={value} asks for {switched}; leave one of them out")
    return precision


def _parsed(row: JobVariable, text: str) -> Any:
    try:
        return row.parse(text)
    except ValueError as error:
        raise Refused(f"{row.name}={text}: expected {error}") from None


def script_help(script: Path) -> str:
    """Return the head of run_gpt3.sh, and a page with every variable, its meaning and its default, as wide as the
    terminal."""
    head = script.read_text(encoding="utf-8").partition("# GPT-3")[2].partition("\nset ")[0]
    text = re.sub(r"(?m)^# ?", "", f"# GPT-3{head}\n")
    lines = re.sub(r"(?<=[^\n])\n(?=\S)", " ", text).split("\n")  # a paragraph in one line
    lines.append(
        'Variables of a job (defaults in brackets; "benchmark\'s" are those in benchmark/config/benchmarks.py)'
    )
    lines += [f"  {row.name:30} {row.meaning} [{row.default}]" for row in VARIABLES]
    width = max(60, min(120, shutil.get_terminal_size((120, 24)).columns))
    return "\n".join(_folded(line, width) for line in lines)


def _folded(line: str, width: int) -> str:
    """Return the line folded to a width, the rest of a row of a table below its text."""
    label = re.match(r" +\S+( \S+)*  +", line)
    indent = 0 if not line.startswith(" ") else label.end() if label and label.end() <= width / 2 else 6
    fold = textwrap.TextWrapper(width, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False)
    return fold.fill(line)
