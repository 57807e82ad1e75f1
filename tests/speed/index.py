"""Time and memory of opening the training data at the benchmark's real size: building its index, and finding it kept.

python -m tests.speed.index FOLDER     # with 7 GB free: two datasets of 45.6 million documents, .bin files sparse

GPT-3's order of a blend of both, then Llama 3.1 8B's order of the first at a global batch size of 16 (8 epochs).

The documents' lengths are random and the tokens are zeros: the index depends on the lengths alone.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from data_prep.sample_order import token_windows
from data_prep.sample_order.kept_index import IndexArray, KeptIndex, NewArray, index_folder
from data_prep.sample_order.training_orders import TRAINING_ORDERS
from data_prep.token_files.indexed_dataset import DTYPES, HEADER, MAGIC, VERSION, bin_path, idx_path
from foundation.outputs.manifest import Recipe

DOCUMENTS = 45_608_611
MEAN_TOKENS = 460.3


def make(prefix: Path, seed: int) -> None:
    """A dataset of uint16 zeros whose documents are as long as C4's, some very long."""
    lengths = np.random.default_rng(seed).lognormal(0, 1, DOCUMENTS)
    sizes = np.ceil(lengths * (MEAN_TOKENS / lengths.mean())).astype("<i4")
    code = next(code for code, dtype in DTYPES.items() if dtype == np.dtype("<u2"))
    byte_ends = np.cumsum(sizes, dtype="<i8") * 2
    with idx_path(prefix).open("wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION, code, DOCUMENTS, DOCUMENTS + 1))
        for array in (sizes, byte_ends - sizes * np.int64(2), np.arange(DOCUMENTS + 1, dtype="<i8")):
            file.write(array.data)
    with bin_path(prefix).open("wb") as file:
        file.truncate(int(byte_ends[-1]))


class _Timed(KeptIndex):
    def arrays(self, name: str, recipe: Recipe, arrays: Mapping[str, NewArray]) -> Mapping[str, IndexArray]:
        started = time.perf_counter()
        arrays_of_index = super().arrays(name, recipe, arrays)
        print(f"  {time.perf_counter() - started:6.2f} s  {self.folder.name}  {name}")
        return arrays_of_index


def measure(folder: Path, kind: str) -> None:
    """Open the data of one order in this process and print what it took."""
    setattr(token_windows, "KeptIndex", _Timed)  # noqa: B010
    order = TRAINING_ORDERS[kind]
    blend = ["0.5", str(folder / "a"), "0.5", str(folder / "b")]
    started = time.perf_counter()
    windows = token_windows.open_token_windows(
        [str(folder / "a")] if order.shuffle_documents else blend,
        sequence_length=order.sequence_length,
        num_samples=order.requested_samples(order.global_batch_size),
        seed=1234,
        plus_one=order.plus_one,
        shuffle_documents=order.shuffle_documents,
    )
    seconds = time.perf_counter() - started
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 2**20
    print(f"{seconds:8.2f} s  in all, the lengths' digests included; {len(windows):,} samples; peak {peak:.2f} GiB")
    middle = len(windows) // 2
    digest = hashlib.md5(
        "\n".join("; ".join(map(str, windows.documents(middle + sample))) for sample in range(64)).encode()
    )
    started = time.perf_counter()
    for sample in range(middle, middle + 64):
        windows.window(sample)
    seconds = time.perf_counter() - started
    print(
        f"{seconds / 64 * 1e3:8.2f} ms a window, of 64 from {middle:,} on; their documents: {digest.hexdigest()[:12]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate("ab"):
        shutil.rmtree(index_folder(folder / name), ignore_errors=True)
        if not bin_path(folder / name).exists():
            make(folder / name, seed)
    for kind in ("gpt3_175b", "llama31_8b"):
        for title in ("built", "from the kept files"):
            print(f"{kind}, {title}", flush=True)
            call = f"measure(Path({str(folder)!r}), {kind!r})"
            code = f"from pathlib import Path; from tests.speed.index import measure; {call}"
            subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    main()
