"""Good files of every kind, of which each random case gets copies."""

import gzip
from pathlib import Path

import zstandard

from checkpoint_convert.conversion.megatron_to_paxml import megatron_to_paxml
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.export.to_huggingface import to_huggingface
from checkpoint_convert.export.to_torch_dist import to_torch_dist
from checksums.folder_sums import digest_folder
from data_prep.corpus.c4 import documents_of
from data_prep.corpus.synthetic_corpus import CorpusSize, write_synthetic_corpus
from data_prep.preprocessing.preprocess import preprocess
from data_prep.tokenizing.tokenizer import train_tokenizer
from foundation.file_formats.md5_list import format_list
from foundation.outputs.digest import md5_file, md5_text
from tests.support import write_dataset

GIB = 1 << 30
SIZES = ModelSizes(layers=2, hidden=5, heads=1, vocab=510, positions=6)
"""8 divides none of them, which makes few chunks."""


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
