"""Files of English in C4's format, and what preprocess makes of them."""

import gzip
import json
import random
from pathlib import Path

from data_prep.token_files.indexed_dataset import bin_path, idx_path
from foundation.outputs.digest import md5_file
from tests.data_prep.english_text import WORDS

DOCUMENTS = 150
"""In each file."""

Sums = tuple[str, str]
"""MD5 of a dataset's .bin and .idx."""


def write_shard(path: Path, documents: int, *, seed: int) -> Path:
    draw = random.Random(seed)
    lines = [json.dumps({"text": " ".join(draw.choices(WORDS, k=draw.randrange(1, 200)))}) for _ in range(documents)]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    return path


def sums(prefix: Path) -> Sums:
    return md5_file(bin_path(prefix)), md5_file(idx_path(prefix))
