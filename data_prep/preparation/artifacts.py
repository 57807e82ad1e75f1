"""The files that the benchmark needs from elsewhere: one table with their sizes and origins."""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

import checksums
from data_prep.corpus.c4 import documents_of
from data_prep.corpus.validation_subset import COUNT
from data_prep.token_files.token_check import require_index, token_problem
from data_prep.tokenizing.tokenizer import VOCAB_SIZE, open_tokenizer
from foundation.errors import CheckFailed, InputError
from foundation.file_formats.md5_list import read_list
from foundation.outputs.digest import md5_file

ArtifactKind = Literal[
    "train",
    "validation-subset",
    "tokenizer",
    "checkpoint",
    "validation",
    "dataset",
    "llama31-dataset",
    "llama31-tokenizer",
]

REPOSITORY = "allenai/c4"
"""The Hugging Face dataset that holds C4."""
TRAIN_SHARDS = range(768, 1024)
"""Shards that the benchmark trains on; the checkpoint was trained on the others (docs/facts/reference.md a.6)."""
ALL_TRAIN_SHARDS = 1024
CHECKPOINT_ARRAYS = 48
DATASET_MD5 = read_list(Path(checksums.__path__[0]) / "dataset_checksum.log")
LLAMA31_DATASET_BYTES = {
    "c4-train.en_6_text_document.bin": 83_976_774_280,
    "c4-train.en_6_text_document.idx": 912_172_262,
    "c4-validation-91205-samples.en_text_document.bin": 166_568_364,
    "c4-validation-91205-samples.en_text_document.idx": 1_824_142,
}
"""The published token files of Llama 3.1 8B (docs/facts/llama31_8b.md 3); their sums come along with a download."""
LLAMA31_VOCAB_SIZE = 128_256
LLAMA31_TOKENIZER_BYTES = 9_085_658
"""Bytes of Llama 3.1's tokenizer.json (docs/facts/llama31_8b.md 9.11)."""

BUCKET = "gs://mlperf-llm-public2"
"""Bucket that answers 403 to most users (docs/facts/peers.md 3, row 1)."""
DATASET_TAR, FP32_CHECKPOINT_TAR, BF16_CHECKPOINT, LLAMA31_DATASET, LLAMA31_TOKENIZER = (
    "dataset_c4_spm.tar",
    "checkpoint_megatron_fp32.tar",
    "checkpoint_nemo_bf16",
    "llama3_1_8b_preprocessed_c4_dataset",
    "llama3_1_8b_tokenizer",
)
DOWNLOADER = "https://raw.githubusercontent.com/mlcommons/r2-downloader/refs/heads/main/mlc-r2-downloader.sh"
DOWNLOADS = "https://training.mlcommons-storage.org/metadata"
DOWNLOAD_COMMANDS = {
    file: f"bash <(curl -s {DOWNLOADER}) {folder}{DOWNLOADS}/{metadata}.uri"
    for file, folder, metadata in (
        (DATASET_TAR, "", "gpt-3-megatron-preprocessed-dataset"),
        (FP32_CHECKPOINT_TAR, "", "gpt-3-megatron-fp32-checkpoint"),
        (BF16_CHECKPOINT, "", "gpt-3-megatron-bf16-checkpoint"),
        (LLAMA31_DATASET, f"-d {LLAMA31_DATASET} ", "llama-3-1-8b-preprocessed-c4-dataset"),
        (LLAMA31_TOKENIZER, f"-d {LLAMA31_TOKENIZER} ", "llama-3-1-8b-tokenizer"),
    )
}
"""The commands in the READMEs of mlcommons/training, by the name of the file or folder that each downloads.

GPT-3's are under "S3 artifacts download" in retired_benchmarks/gpt3/megatron-lm, since its pull request 842 of November
2025; Llama's under "Preprocessed data download" in small_llm_pretraining/nemo."""
DOWNLOAD_LISTS = {
    LLAMA31_DATASET: "llama-3-1-8b-preprocessed-c4-dataset.md5",
    LLAMA31_TOKENIZER: "llama-3-1-8b-tokenizer.md5",
}
"""Lists of MD5 sums that come along in a downloaded folder (docs/facts/llama31_8b.md 9.11)."""
HOW_TO_GET_IN = (
    f"{BUCKET} answers 403 to most. MLCommons has a downloader for the rest, as of July 2026. It needs bash, wget and "
    "cloudflared, asks you to sign in with a browser, and may install cloudflared by sudo: run it yourself, in the "
    "folder that is to hold the file. Compare the download with the NAME.md5 that comes along (python -m checksums "
    "verify), unpack it, and pass --from FOLDER."
)


@dataclass(frozen=True)
class Artifact:
    """A group of files that belong together."""

    files: tuple[str, ...]
    """Paths below the output folder. The checkpoint is a single folder."""
    bytes: float
    """Approximate size of all of them (docs/facts/reference.md a.5, a.6, f.1; docs/facts/peers.md 1.3)."""
    origin: str
    """Description of their origin."""
    check: Callable[[Path], str | None]
    """Function that raises InputError or CheckFailed for a wrong file, and returns its MD5 if that was compared."""
    public: bool = False
    """True if ``REPOSITORY`` has them, under the same names."""
    published_name: str | None = None
    """Name at the origin, if it differs."""
    downloads: tuple[str, ...] = ()
    """Files of DOWNLOAD_COMMANDS that hold these files, or replace them."""

    @property
    def brings_sums(self) -> bool:
        """True if a download brings a list with the sums of just these files."""
        return all(name in DOWNLOAD_LISTS for name in self.downloads) and bool(self.downloads)


def train_shard(number: int) -> str:
    return f"en/c4-train.{number:05d}-of-{ALL_TRAIN_SHARDS:05d}.json.gz"


def _begins_with_documents(path: Path) -> None:
    """Check the first block only: preprocess reads the whole file, and reports damage further on."""
    if next(documents_of(path), None) is None:
        raise CheckFailed(f"{path}: holds no document")


def _is_the_subset(path: Path) -> None:
    documents = sum(1 for _ in itertools.islice(documents_of(path), COUNT + 1))
    if documents != COUNT:
        raise CheckFailed(f"{path}: {'more' if documents > COUNT else f'{documents:,}'} documents, expected {COUNT:,}")


def _is_a_tokenizer_of(vocab_size: int, path: Path) -> None:
    pieces = open_tokenizer(path).vocab_size
    if pieces != vocab_size:
        raise CheckFailed(f"{path}: {pieces:,} pieces, expected {vocab_size:,}")


def _is_a_checkpoint(path: Path) -> None:
    """Count the folders of weights and moments, without the counters beside them (docs/facts/reference.md f.2).

    The converter checks shapes and chunks.
    """
    names = [entry.parent.name for entry in path.glob("*/.zarray")]
    arrays = sum(name != "step" and not name.endswith(".count") for name in names)
    if arrays != CHECKPOINT_ARRAYS:
        raise CheckFailed(
            f"{path}: {arrays} arrays (folders with .zarray) besides counters, expected {CHECKPOINT_ARRAYS}"
        )


def _has_published_md5(path: Path) -> str:
    md5, published_md5 = md5_file(path), DATASET_MD5[path.name]
    if md5 != published_md5:
        raise CheckFailed(f"{path}: MD5 {md5}, expected {published_md5} (checksums/dataset_checksum.log)")
    return md5


def _has_published_size(path: Path) -> None:
    require_size(path, LLAMA31_DATASET_BYTES[path.name])
    if path.suffix == ".idx":
        require_index(path)
    else:
        if problem := token_problem(path, np.dtype("<i4"), LLAMA31_VOCAB_SIZE):
            raise CheckFailed(f"{problem}; download it again")


def _is_llamas_tokenizer(path: Path) -> None:
    require_size(path, LLAMA31_TOKENIZER_BYTES)
    _is_a_tokenizer_of(LLAMA31_VOCAB_SIZE, path)


def require_size(path: Path, expected: int) -> None:
    """Raise CheckFailed if the file has another size than the published one."""
    size = path.stat().st_size
    if size != expected:
        raise CheckFailed(f"{path}: {size:,} bytes, expected {expected:,}; download it again")


ARTIFACTS: dict[ArtifactKind, Artifact] = {
    "train": Artifact(
        files=tuple(train_shard(number) for number in TRAIN_SHARDS),
        bytes=76e9,
        origin=f"Hugging Face, dataset {REPOSITORY}",
        check=_begins_with_documents,
        public=True,
    ),
    "validation-subset": Artifact(
        files=("c4-validation_24567exp.json",),
        bytes=60e6,
        origin=f"{BUCKET}/c4/en_val_subset_json; its tokens are in {DATASET_TAR}",
        check=_is_the_subset,
        downloads=(DATASET_TAR,),
    ),
    "tokenizer": Artifact(
        files=("tokenizers/c4_spm/sentencepiece.model",),
        bytes=1.1e6,
        origin=f"{BUCKET}/vocab/c4_en_301_5Mexp2_spm.model; the README sends you to the downloader, which has no file "
        f"of that name: perhaps within {DATASET_TAR}",
        check=partial(_is_a_tokenizer_of, VOCAB_SIZE),
        downloads=(DATASET_TAR,),
        published_name="c4_en_301_5Mexp2_spm.model",
    ),
    "checkpoint": Artifact(
        files=("checkpoint_00004000",),
        bytes=2.1e12,
        origin=f"{BUCKET}/gpt3_spmd1x64x24_tpuv4-3072_v84_20221101/checkpoints; "
        f"or {FP32_CHECKPOINT_TAR} or {BF16_CHECKPOINT}, which need no conversion",
        check=_is_a_checkpoint,
        downloads=(FP32_CHECKPOINT_TAR, BF16_CHECKPOINT),
    ),
    # Not needed besides: the files to choose a validation subset anew, and the ready-made output of preprocess.
    "validation": Artifact(
        files=tuple(f"en/c4-validation.{number:05d}-of-00008.json.gz" for number in range(8)),
        bytes=0.3e9,
        origin=f"Hugging Face, dataset {REPOSITORY}",
        check=_begins_with_documents,
        public=True,
    ),
    "dataset": Artifact(
        files=tuple(f"preprocessed_c4_spm/{name}" for name in DATASET_MD5),
        bytes=90e9,
        origin=DATASET_TAR,
        check=_has_published_md5,
        downloads=(DATASET_TAR,),
    ),
    "llama31-dataset": Artifact(
        files=tuple(f"preprocessed_c4_llama31/{name}" for name in LLAMA31_DATASET_BYTES),
        bytes=sum(LLAMA31_DATASET_BYTES.values()),
        origin=LLAMA31_DATASET,
        check=_has_published_size,
        downloads=(LLAMA31_DATASET,),
    ),
    "llama31-tokenizer": Artifact(
        files=("tokenizers/llama31/tokenizer.json",),
        bytes=LLAMA31_TOKENIZER_BYTES,
        origin=f"{LLAMA31_TOKENIZER}; or Hugging Face, model meta-llama/Llama-3.1-8B, for whom Meta lets in",
        check=_is_llamas_tokenizer,
        downloads=(LLAMA31_TOKENIZER,),
    ),
}
NEEDED: tuple[ArtifactKind, ...] = ("train", "validation-subset", "tokenizer", "checkpoint")
"""The files of GPT-3 175B."""


def needed_files(kinds: Sequence[ArtifactKind], shards: str | None) -> dict[str, ArtifactKind]:
    """Return the files of ``kinds``, as paths below the output folder.

    ``shards``: other training shards than the benchmark's, as FIRST-LAST or one number. Raises InputError for any other
    text.
    """
    train = ARTIFACTS["train"].files
    if shards is not None:
        numbers = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", shards, re.ASCII)
        first_shard, last_shard = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (1, 0)
        if not first_shard <= last_shard < ALL_TRAIN_SHARDS:
            raise InputError(f"--shards {shards}: expected FIRST-LAST or one number, from 0 to {ALL_TRAIN_SHARDS - 1}")
        train = tuple(train_shard(number) for number in range(first_shard, last_shard + 1))
    return {name: kind for kind in kinds for name in (train if kind == "train" else ARTIFACTS[kind].files)}
