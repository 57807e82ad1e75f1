"""All commands of the three tools as a table: what they read, what they write, which options they have."""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from checkpoint_convert.conversion.megatron_to_paxml import megatron_to_paxml
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.export.to_huggingface import to_huggingface
from checkpoint_convert.export.to_torch_dist import to_torch_dist
from checksums.md5_list import digest_folder, format_list
from data_prep.corpus.c4 import documents_of
from data_prep.corpus.synthetic_corpus import CorpusSize, write_synthetic_corpus
from data_prep.preprocessing.preprocess import preprocess
from data_prep.sample_order.blend_file import write_blend
from data_prep.token_files.indexed_dataset import IndexedDataset
from data_prep.tokenizing.tokenizer import train_tokenizer
from stage.outputs.digest import md5_file, md5_text
from tests.support import write_dataset

GIB = 1 << 30
SIZES = ModelSizes(layers=2, hidden=5, heads=1, vocab=510, positions=6)
"""8 divides none of them, which makes few chunks."""
NUMBERS = [*"01289", "-1", "-7", "1e3", "nan", "inf", "1.5", "", "x", "0x10", str(10**11), str(1 << 63), str(10**30)]
BYTE_SIZES = ["0", "-1GiB", "1.2.3GiB", "1e30GiB", "9" * 50 + "B", "nan", "\u0663GiB", "1 GiB", "1", "GiB", "1KiB"]
WORDS = ["", " ", "-", "--", "a\nb", "\udcff", "\\", "..", "~", "text", "%s", "a" * 300, "[", "*", "\u0663", "a.b:c"]
SHARDS = ["3", "-1/2", "1/0", "0/" + "9" * 30, "2/2", "a/b", "1/2/3", "0/1 ", "/", "1/1", "0/2"]
HOSTILE = [*NUMBERS, *BYTE_SIZES, *WORDS, *SHARDS]
PATHS = ["", ".", "..", "/", "/dev/null", "/dev/zero", "/proc/self/mem", "nowhere", "a" * 300, "~", "x\ny", "\udcfe"]
"""In the place of a file that is read."""


@dataclass(frozen=True)
class FuzzedCommand:
    """One command. Options with an empty name are positional."""

    tool: str
    name: str
    reads: Mapping[str, str] = field(default_factory=dict)
    """What prepared files an option takes, by pattern."""
    several: Sequence[str] = ()
    """Of these options, those that take more than one."""
    writes: str | None = None
    """The option with the output."""
    output: str = "x"
    """Its usual name."""
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Usual values of what is always given."""
    sometimes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    flags: Sequence[str] = ()
    sometimes_reads: Mapping[str, str] = field(default_factory=dict)
    by_address: Sequence[str] = ()
    """Of the options that read, those that take addresses, too."""


CONVERTING = {"--workers": ["1", "2"], "--memory-limit": ["1GiB", "8MiB"]}
COMMANDS = (
    FuzzedCommand(
        "data_prep",
        "preprocess",
        reads={"--input": "[01].*", "--tokenizer": "m.model"},
        several=("--input",),
        writes="--output-prefix",
        options={"--workers": ["1", "2"]},
        sometimes={
            "--on-bad-line": ["skip", "stop"],
            "--shard": ["0/2", "1/2"],
            "--text-key": ["text"],
            "--bandwidth-limit": ["50MB"],
        },
        sometimes_reads={"--md5-list": "texts.md5"},
        by_address=("--input",),
        flags=("--force", "--append-eod", "--json"),
    ),
    FuzzedCommand(
        "data_prep",
        "train-tokenizer",
        reads={"--input": "[01].*"},
        several=("--input",),
        writes="--output",
        by_address=("--input",),
        options={"--vocab-size": ["400"]},
        sometimes={"--documents": ["20"]},
        flags=("--force", "--json"),
    ),
    FuzzedCommand(
        "data_prep",
        "validation-subset",
        reads={"--input": "[01].*"},
        writes="--output",
        by_address=("--input",),
        options={"--count": ["4"]},
        sometimes_reads={"--hash-list": "list.hashes"},
        flags=("--force", "--json"),
    ),
    FuzzedCommand(
        "data_prep",
        "synthetic-corpus",
        writes="--output",
        options={
            "--seed": ["1", "2"],
            "--size.shards": ["1"],
            "--size.documents-per-shard": ["3"],
            "--size.validation-documents": ["1"],
        },
        flags=("--force", "--json"),
    ),
    FuzzedCommand(
        "data_prep",
        "samples",
        reads={"--data-path": "[abc].idx"},
        writes="--output",
        output="x.npy",
        options={"--seq-length": ["8"], "--num-samples": ["9", "-1"], "--seed": ["1"]},
        sometimes={"--first": ["2"], "--count": ["3"]},
        flags=("--plus-one", "--documents", "--json"),
    ),
    FuzzedCommand(
        "data_prep",
        "samples",
        reads={"--data-path": "c.idx", "--tokenizer": "m.model"},
        writes="--output",
        output="x.npy",
        options={"--seq-length": ["8"], "--num-samples": ["9", "-1"], "--seed": ["1"]},
        flags=("--documents", "--json"),
    ),
    FuzzedCommand(
        "data_prep",
        "samples",
        reads={"--data-path": "ab.blend.json"},
        writes="--output",
        output="x.npy",
        options={"--seq-length": ["8"], "--num-samples": ["9"], "--seed": ["1"]},
        flags=("--json",),
    ),
    FuzzedCommand(
        "data_prep",
        "inspect",
        reads={"--data-path": "c.idx"},
        sometimes_reads={"--against": "[abc].idx", "--tokenizer": "m.model"},
        writes="--tables",
        flags=("--json",),
    ),
    FuzzedCommand("data_prep", "inspect", reads={"--data-path": "ab.blend.json"}, flags=("--json",)),
    FuzzedCommand(
        "data_prep",
        "inspect",
        reads={"--data-path": "[abc].idx"},
        sometimes_reads={"--against": "[abc].idx"},
        writes="--picture",
        output="x.svg",
    ),
    FuzzedCommand(
        "data_prep",
        "blend",
        reads={"--input": "[ac].idx"},
        several=("--input",),
        writes="--output",
        output="x.blend.json",
        sometimes={"--weights": ["tokens", "equal"], "--temperature": ["2", "0.5"]},
        flags=("--json",),
    ),
    FuzzedCommand(
        "data_prep",
        "merge",
        reads={"--input": "[ac].idx"},
        several=("--input",),
        writes="--output-prefix",
        flags=("--force", "--json"),
    ),
    FuzzedCommand(
        "data_prep",
        "fetch",
        reads={"--from": "origin"},
        writes="--output",
        options={"--what": ["train", "tokenizer", "checkpoint", "validation", "validation-subset"]},
        sometimes={"--shards": ["768", "768-769"], "--revision": ["main"]},
        flags=("--list", "--json"),
    ),
    FuzzedCommand(
        "data_prep",
        "plan",
        sometimes={
            "--nodes": ["1"],
            "--cores": ["64"],
            "--mb-per-s-per-core": ["3"],
            "--disk-mb-per-s": ["100"],
            "--network-mb-per-s": ["9"],
        },
        flags=("--json",),
    ),
    FuzzedCommand(
        "checkpoint_convert",
        "paxml-to-megatron",
        reads={"--input": "paxml*"},
        writes="--output",
        options={"--dtype": ["bf16", "fp32"], "--workers": ["1", "2"]},
        sometimes={"--shard": ["0/2", "1/2"], "--disk-mb-per-s": ["10"], "--bandwidth-limit": ["50MB"]},
        by_address=("--input",),
        flags=("--force", "--json", "--plan", "--missing-chunks-are-zeros"),
    ),
    FuzzedCommand(
        "checkpoint_convert",
        "megatron-to-paxml",
        reads={"--input": "mega*"},
        writes="--output",
        options=CONVERTING,
        sometimes={"--heads": ["1"]},
        flags=("--force", "--json"),
    ),
    FuzzedCommand(
        "checkpoint_convert",
        "plan",
        options={"--dtype": ["bf16"]},
        sometimes={"--workers": ["1", "2"], "--disk-mb-per-s": ["9"]},
        flags=("--json",),
    ),
    FuzzedCommand(
        "checkpoint_convert",
        "to-huggingface",
        reads={"--input": "mega*"},
        writes="--output",
        options={"--workers": ["1"]},
        sometimes={"--dtype": ["bf16", "fp32"], "--heads": ["1"]},
        sometimes_reads={"--tokenizer": "m.model"},
        flags=("--force", "--json"),
    ),
    FuzzedCommand(
        "checkpoint_convert",
        "to-torch-dist",
        reads={"--input": "mega*"},
        writes="--output",
        options={"--workers": ["1"]},
        sometimes={"--dtype": ["bf16", "fp32"]},
        flags=("--force", "--json"),
    ),
    FuzzedCommand(
        "checkpoint_convert",
        "inspect",
        reads={"": "[pmdth]*_[!l]*"},
        sometimes={"--array": ["*bias*"], "--workers": ["1", "2"]},
        flags=("--md5", "--json"),
    ),
    FuzzedCommand(
        "checkpoint_convert",
        "compare",
        reads={"": "paxml_*", " ": "mega_*"},
        sometimes={"--tolerance": ["0.5"], "--workers": ["1", "2"]},
        flags=("--json",),
    ),
    FuzzedCommand(
        "checkpoint_convert",
        "compare",
        reads={"": "mega_fp32", " ": "mega_*"},
        sometimes={"--tolerance": ["0.5"], "--workers": ["1", "2"]},
        flags=("--json",),
    ),
    FuzzedCommand("checkpoint_convert", "compare", reads={"": "hf_1", " ": "hf_1"}),
    FuzzedCommand("checkpoint_convert", "compare", reads={"": "torch_dist", " ": "torch_dist"}),
    FuzzedCommand(
        "checkpoint_convert",
        "random-paxml",
        writes="--output",
        options={
            "--seed": ["1"],
            "--layers": ["1"],
            "--hidden": ["4"],
            "--heads": ["2"],
            "--vocab": ["8"],
            "--positions": ["4"],
        },
        flags=("--force", "--json"),
    ),
    FuzzedCommand("checksums", "create", reads={"": "mega_fp32"}, writes="--output", flags=("--json",)),
    FuzzedCommand("checksums", "create", reads={"": "origin"}, writes="--output", flags=("--json",)),
    FuzzedCommand("checksums", "verify", reads={"": "mega_fp32", "--manifest": "mega_fp32.md5"}, flags=("--json",)),
    FuzzedCommand("checksums", "verify", reads={"": "origin", "--manifest": "lists.*"}, flags=("--json",)),
)


def prepare(folder: Path) -> None:
    """Good files of every kind."""
    folder.mkdir()
    _prepare_texts(folder)
    _prepare_datasets(folder)
    _prepare_checkpoints(folder)
    _prepare_origin(folder)


def _prepare_texts(folder: Path) -> None:
    write_synthetic_corpus(folder / "corpus", seed=5, size=CorpusSize(2, 30, 10))
    shards = sorted((folder / "corpus" / "en").iterdir())
    train_tokenizer(shards, folder / "m.model", vocab_size=500)
    for number, shard in enumerate(shards):
        lines = gzip.decompress(shard.read_bytes())
        (folder / f"{number}.json").write_bytes(lines)
        (folder / f"{number}.json.gz").write_bytes(gzip.compress(lines[:999]) + gzip.compress(lines[999:]))
        (folder / f"{number}.jsonl.zst").write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(lines))
    hashes = [md5_text(text) for _, text in documents_of(folder / "0.json")]
    (folder / "list.hashes").write_text("\n".join(hashes[3:7]) + "\n")
    inputs = sorted(path for path in folder.iterdir() if path.name.startswith(("0.", "1.")))
    (folder / "texts.md5").write_text(format_list({path.name: md5_file(path) for path in inputs}))


def _prepare_datasets(folder: Path) -> None:
    write_dataset(folder / "a", [30, 11, 60, 1, 200], seed=1)
    write_dataset(folder / "b", [5] * 40, seed=2, vocab_size=70_000)
    preprocess([folder / "0.json"], folder / "m.model", folder / "c", workers=1)
    both = [folder / "a", folder / "c"]
    write_blend(folder / "ab.blend.json", both, [0.3, 0.7], [IndexedDataset(prefix).num_tokens for prefix in both])


def _prepare_checkpoints(folder: Path) -> None:
    write_random_paxml(folder / "paxml_1", seed=1, sizes=SIZES)
    write_random_paxml(folder / "paxml_raw", seed=1, sizes=SIZES, compress=False, layers_together=False)
    (folder / "paxml_raw.manifest.json").unlink()
    for dtype in ("fp32", "bf16"):
        paxml_to_megatron(folder / "paxml_1", folder / f"mega_{dtype}", dtype=dtype, workers=1, memory_limit=GIB)
    megatron_to_paxml(folder / "mega_fp32", folder / "paxml_again", heads=1, workers=1, memory_limit=GIB)
    to_torch_dist(folder / "mega_bf16", folder / "torch_dist")
    to_huggingface(folder / "mega_bf16", folder / "hf_1", heads=1)


def _prepare_origin(folder: Path) -> None:
    """What somebody has fetched otherwise, and lists of it in all spellings."""
    origin = folder / "origin"
    (origin / "en").mkdir(parents=True)
    for number in (768, 769):
        (origin / "en" / f"c4-train.{number:05d}-of-01024.json.gz").write_bytes((folder / "0.json.gz").read_bytes())
    (origin / "c4-validation.00000-of-00008.json.gz").write_bytes((folder / "1.json.gz").read_bytes())
    (origin / "sentencepiece.model").write_bytes((folder / "m.model").read_bytes())
    digests = digest_folder(origin)
    lists = {
        "md5": format_list(digests),
        "tag": "".join(f"MD5 ({name}) = {digest}\n" for name, digest in digests.items()),
        "above": "".join(f"{digest}  /data/origin/{name}\n" for name, digest in digests.items()),
    }
    for ending, text in lists.items():
        (folder / f"lists.{ending}").write_text(text)
