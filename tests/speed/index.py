"""Time and memory of opening the training data at the benchmark's real size: building its index, and finding it kept.

python -m tests.speed.index FOLDER     # with 3 GB free: two datasets of 45.6 million documents, .bin files sparse

The documents' lengths are random and the tokens are zeros: the index depends on the lengths alone.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from data_prep.sample_order import token_windows
from data_prep.sample_order.kept_index import IndexArray, KeptIndex, NewArray, index_folder
from data_prep.token_files.indexed_dataset import DTYPES, HEADER, MAGIC, VERSION, bin_path, idx_path
from foundation.outputs.manifest import Recipe

DOCUMENTS = 45_600_000
MEAN_TOKENS = 483
SEQUENCE_LENGTH = 2048
NUM_SAMPLES = 20_000_000


def make(prefix: Path, seed: int) -> None:
    """A dataset of uint16 zeros whose documents are as long as C4's, some very long."""
    lengths = np.random.default_rng(seed).lognormal(0, 1, DOCUMENTS)
    sizes = np.ceil(lengths * (MEAN_TOKENS / lengths.mean())).astype("<i4")
    code = next(code for code, dtype in DTYPES.items() if dtype == np.dtype("<u2"))
    ends = np.cumsum(sizes, dtype="<i8") * 2
    with idx_path(prefix).open("wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION, code, DOCUMENTS, DOCUMENTS + 1))
        for array in (sizes, ends - sizes * np.int64(2), np.arange(DOCUMENTS + 1, dtype="<i8")):
            file.write(array.data)
    with bin_path(prefix).open("wb") as file:
        file.truncate(int(ends[-1]))


class _Timed(KeptIndex):
    def arrays(self, name: str, recipe: Recipe, arrays: Mapping[str, NewArray]) -> Mapping[str, IndexArray]:
        started = time.perf_counter()
        found = super().arrays(name, recipe, arrays)
        print(f"  {time.perf_counter() - started:6.2f} s  {self.folder.name}  {name}")
        return found


def measure(folder: Path) -> None:
    """Open the blend in this process and print what it took."""
    setattr(token_windows, "KeptIndex", _Timed)  # noqa: B010
    data_path = ["0.5", str(folder / "a"), "0.5", str(folder / "b")]
    started = time.perf_counter()
    windows = token_windows.open_token_windows(
        data_path, sequence_length=SEQUENCE_LENGTH, num_samples=NUM_SAMPLES, seed=1234
    )
    seconds = time.perf_counter() - started
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 2**20
    print(f"{seconds:8.2f} s  in all, the lengths' digests included; {len(windows):,} samples; peak {peak:.2f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate("ab"):
        shutil.rmtree(index_folder(folder / name), ignore_errors=True)
        if not bin_path(folder / name).exists():
            make(folder / name, seed)
    for title in ("built", "from the kept files"):
        print(title, flush=True)
        code = f"from pathlib import Path; from tests.speed.index import measure; measure(Path({str(folder)!r}))"
        subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    main()
