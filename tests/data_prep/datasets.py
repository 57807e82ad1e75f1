"""Small datasets of given token ids."""

from pathlib import Path

import numpy as np

from data_prep.token_files.indexed_dataset import IndexedDatasetWriter, token_dtype


def write_documents(prefix: Path, documents: list[list[int]], vocab_size: int = 50257) -> Path:
    with IndexedDatasetWriter(prefix, token_dtype(vocab_size)) as writer:
        for ids in documents:
            writer.append(np.array(ids), [len(ids)])
    return prefix
