"""What lies beside a result as its evidence: the chain and the configuration of the run, both perhaps a stranger's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.config.run_config import Benchmark
from benchmark.config.typed_json import dataclass_from_json
from benchmark.evidence.chain_links import EVIDENCE, MOST_BYTES, Chain, read_chain
from benchmark.evidence.mismatch import Mismatch
from stage.errors import InputError
from stage.json_files import read_json

CONFIG = "config.json"
MOST_CONFIG_BYTES = 1 << 20
MOST_SAMPLES = 200_000_000
"""Ten times those of the benchmark: their order takes 20 bytes each."""
MOST_SEQUENCE, MOST_LAYERS, MOST_BATCH = 1 << 17, 4096, 1 << 20


@dataclass(frozen=True)
class Companion:
    """The evidence of one result."""

    chain: Chain
    config: Mapping[str, Any]
    """config.json of the run."""
    benchmark: Benchmark
    """Of ``config``."""


def read_companion(folder: Path, most_bytes: int = MOST_BYTES) -> Companion:
    """What ``folder`` has. Raises InputError where a file is missing, larger than ``most_bytes``, or not what a run
    writes."""
    chain = read_chain(folder / EVIDENCE, most_bytes)
    config = read_config(folder / CONFIG)
    return Companion(chain, config, benchmark_of(config, folder / CONFIG))


def read_config(path: Path) -> dict[str, Any]:
    """A small JSON object. Raises InputError for anything else."""
    try:
        return read_json(path, dict, mend="expected the configuration that a run writes", largest=MOST_CONFIG_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the folder of a run that was trained with --evidence") from None


def benchmark_of(config: Mapping[str, Any], path: Path) -> Benchmark:
    """Raises InputError where it is none, or one beyond all bounds: no memory is taken by numbers that nobody has
    looked at."""
    benchmark = dataclass_from_json(Benchmark, config.get("benchmark"), f"{path}: benchmark")
    model = benchmark.model
    bounds = {
        "train_samples": (benchmark.train_samples, MOST_SAMPLES),
        "global_batch_size": (benchmark.global_batch_size, MOST_BATCH),
        "seq_length": (model.seq_length, MOST_SEQUENCE),
        "num_layers": (model.num_layers, MOST_LAYERS),
        "hidden_size": (model.hidden_size, MOST_SEQUENCE),
        "padded_vocab_size": (model.padded_vocab_size, 1 << 22),
        "max_position_embeddings": (model.max_position_embeddings, MOST_SEQUENCE),
    }
    for name, (value, most) in bounds.items():
        if not 1 <= value <= most:
            raise InputError(f"{path}: {name} {value}: expected 1 to {most:,}; no run of this benchmark has it")
    return benchmark


def config_deviations(companion: Companion) -> Iterator[Mismatch]:
    """config.json, by which is trained, and the chain's beginning must tell the same."""
    begin, file = companion.chain.begin, companion.config
    if begin is None:
        return
    for name, recorded in (("seed", begin.seed), ("precision", begin.precision)):
        if file.get(name) != recorded:
            yield Mismatch(None, f"{name} of config.json", f"{file.get(name)}"[:200], f"{recorded} in the chain")
    benchmark: Mapping[str, Any] = file["benchmark"]
    for name in dict.fromkeys((*benchmark, *begin.benchmark)):
        one, other = benchmark.get(name), begin.benchmark.get(name)
        if one != other:
            yield Mismatch(None, f"{name} of config.json", f"{one}"[:200], f"{other} in the chain"[:200])
