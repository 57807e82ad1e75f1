"""All commands of the three tools as a table of usages: what they read, what they write, which options they have."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

NUMBERS = [*"01289", "-1", "-7", "1e3", "nan", "inf", "1.5", "", "x", "0x10", str(10**11), str(1 << 63), str(10**30)]
BYTE_SIZES = ["0", "-1GiB", "1.2.3GiB", "1e30GiB", "9" * 50 + "B", "nan", "\u0663GiB", "1 GiB", "1", "GiB", "1KiB"]
WORDS = ["", " ", "-", "--", "a\nb", "\udcff", "\\", "..", "~", "text", "%s", "a" * 300, "[", "*", "\u0663", "a.b:c"]
SHARDS = ["3", "-1/2", "1/0", "0/" + "9" * 30, "2/2", "a/b", "1/2/3", "0/1 ", "/", "1/1", "0/2"]
HOSTILE = [*NUMBERS, *BYTE_SIZES, *WORDS, *SHARDS]
PATHS = ["", ".", "..", "/", "/dev/null", "/dev/zero", "/proc/self/mem", "nowhere", "a" * 300, "~", "x\ny", "\udcfe"]
"""In the place of a file that is read."""
USAGES = """
data_prep preprocess --input <[01].*>+@ --tokenizer <m.model> --workers 1|2 [--on-bad-line skip|stop] [--shard 0/2|1/2]
    [--text-key text] [--bandwidth-limit 50MB] [--md5-list <texts.md5>] [--force] [--append-eod] [--json]
    --output-prefix =x
data_prep train-tokenizer --input <[01].*>+@ --vocab-size 400 [--documents 20] [--force] [--json] --output =x
data_prep validation-subset --input <[01].*>@ --count 4 [--hash-list <list.hashes>] [--force] [--json] --output =x
data_prep synthetic-corpus --seed 1|2 --size.shards 1 --size.documents-per-shard 3 --size.validation-documents 1
    [--force] [--json] --output =x
data_prep samples --data-path <[abc].idx> --seq-length 8 --num-samples 9|-1 --seed 1 [--first 2] [--count 3]
    [--plus-one] [--shuffle-documents] [--documents] [--json] --output =x.npy
data_prep samples --data-path <c.idx> --tokenizer <m.model> --seq-length 8 --num-samples 9|-1 --seed 1 [--documents]
    [--json] --output =x.npy
data_prep inspect --data-path <c.idx> [--against <[abc].idx>] [--tokenizer <m.model>] [--json]
data_prep inspect --data-path <[abc].idx> [--against <[abc].idx>] [--json]
data_prep fetch --from <origin> --what train|tokenizer|checkpoint|validation|validation-subset [--shards 768|768-769]
    [--revision main] [--list] [--json] --output =x
data_prep plan [--nodes 1] [--cores 64] [--mb-per-s-per-core 3] [--disk-mb-per-s 100] [--network-mb-per-s 9] [--json]
checkpoint_convert paxml-to-megatron --input <paxml*>@ --dtype bf16|fp32 --workers 1|2 [--shard 0/2|1/2]
    [--disk-mb-per-s 10] [--bandwidth-limit 50MB] [--force] [--json] [--plan] [--missing-chunks-are-zeros]
    --output =x
checkpoint_convert megatron-to-paxml --input <mega*> --workers 1|2 --memory-limit 1GiB|8MiB [--heads 1] [--force]
    [--json] --output =x
checkpoint_convert plan --dtype bf16 [--workers 1|2] [--disk-mb-per-s 9] [--json]
checkpoint_convert to-huggingface --input <mega*> --workers 1 [--dtype bf16|fp32] [--heads 1] [--tokenizer <m.model>]
    [--force] [--json] --output =x
checkpoint_convert to-torch-dist --input <mega*> --workers 1 [--dtype bf16|fp32] [--force] [--json] --output =x
checkpoint_convert inspect <[pmdth]*_[!l]*> [--array *bias*] [--workers 1|2] [--md5] [--json]
checkpoint_convert compare <paxml_*> <mega_*> [--tolerance 0.5] [--workers 1|2] [--json]
checkpoint_convert compare <mega_fp32> <mega_*> [--tolerance 0.5] [--workers 1|2] [--json]
checkpoint_convert compare <hf_1> <hf_1>
checkpoint_convert compare <torch_dist> <torch_dist>
checkpoint_convert random-paxml --seed 1 --layers 1 --hidden 4 --heads 2 --vocab 8 --positions 4 [--force] [--json]
    --output =x
checksums create <mega_fp32> [--json] --output =x
checksums create <origin> [--json] --output =x
checksums verify <mega_fp32> --manifest <mega_fp32.md5> [--json]
checksums verify <origin> --manifest <lists.*> [--json]
"""
"""Usages: […] is given sometimes; a|b are usual values; <…> is a copy of a prepared file or folder of that pattern,
with + of more than one, with @ perhaps by its address; =NAME is the output, by its usual name."""


@dataclass(frozen=True)
class Argument:
    """An option, a flag or a positional argument."""

    option: str
    """Name with its dashes; empty for a positional argument."""
    sometimes: bool
    pattern: str
    """Pattern of the prepared files that it reads, if it does."""
    marks: str
    output: str
    """Usual name of the output, if it names that."""
    values: tuple[str, ...]
    """Usual values; none of a flag."""


@dataclass(frozen=True)
class FuzzedCommand:
    tool: str
    name: str
    arguments: tuple[Argument, ...]

    @property
    def has_files(self) -> bool:
        return any(one.pattern or one.output for one in self.arguments)


def _commands() -> Iterator[FuzzedCommand]:
    for usage in re.split(r"\n(?=\S)", USAGES.strip()):
        tool, name, *words = usage.split()
        found: list[tuple[str, str]] = []
        for word in words:
            if word.startswith(("--", "[--")):
                found.append((word, ""))
            elif found and not found[-1][1] and found[-1][0]:
                found[-1] = (found[-1][0], word)
            else:
                found.append(("", word))
        yield FuzzedCommand(tool, name, tuple(_argument(option, value) for option, value in found))


def _argument(option: str, value: str) -> Argument:
    sometimes, value = option.startswith("["), value.removesuffix("]") if option.startswith("[") else value
    read = re.fullmatch(r"<(.*)>([+@]*)", value)
    pattern, marks = read.groups() if read else ("", "")
    output = value.removeprefix("=") if value.startswith("=") else ""
    values = () if pattern or output or not value else tuple(value.split("|"))
    return Argument(option.strip("[]"), sometimes, pattern, marks, output, values)


COMMANDS = tuple(_commands())
