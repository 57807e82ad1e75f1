"""The systems as data, and one of them by its name.

``train BENCHMARK --system NAME --dry-run`` shows what each of their devices would hold. Topologies are the fastest that
fit by ``plan gpt3_175b --system NAME --global-batch-size 2048 --search``, or within a percent of it with memory to
spare; ``LAYOUTS`` has those of other benchmarks. None was measured on its devices yet.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.config.system_config import SUFFIX, System, read_system
from foundation.cli import choose


def _machines(name: str, nodes: int, accelerator: str, platform: str, **topology: object) -> System:
    """Machines of eight accelerators."""
    return System(
        name=name,
        device="cuda",
        nodes=nodes,
        devices_per_node=8,
        accelerator=accelerator,
        platform=f"{platform}-n{nodes}",
        **{  # type: ignore[arg-type]
            "micro_batch_size": 2,
            "pipeline_chunks": 6,
            "recompute": "selective",
            "warm_up_steps": 2,
            **topology,
        },
    )


_ALL = (
    _machines("dgxh100_n64", 64, "H100 SXM", "DGX-H100", tensor_parallel=4, pipeline_parallel=8),
    _machines("dgxh100_n128", 128, "H100 SXM", "DGX-H100", tensor_parallel=4, pipeline_parallel=8),
    _machines("dgxh100_n1", 1, "H100 SXM", "DGX-H100", tensor_parallel=8, micro_batch_size=1),
    _machines("h200_n1", 1, "H200", "DGX-H200", tensor_parallel=8, micro_batch_size=1),
    _machines("b200_n1", 1, "B200", "DGX-B200", tensor_parallel=8, micro_batch_size=1),
    _machines("dgxh100_n8", 8, "H100 SXM", "DGX-H100", tensor_parallel=8, pipeline_parallel=8),
    _machines("dgxa100_n64", 64, "A100-80GB", "DGX-A100", tensor_parallel=8, pipeline_parallel=4, micro_batch_size=4),
    _machines("dgxa100_n128", 128, "A100-80GB", "DGX-A100", tensor_parallel=8, pipeline_parallel=4, micro_batch_size=4),
    _machines("h200_n8", 8, "H200", "DGX-H200", tensor_parallel=4, pipeline_parallel=8),
    _machines(
        "b200_n8",
        8,
        "B200",
        "DGX-B200",
        tensor_parallel=4,
        pipeline_parallel=8,
        pipeline_chunks=3,
        micro_batch_size=4,
    ),
    System(
        name="cpu_p2",
        device="cpu",
        nodes=1,
        devices_per_node=2,
        micro_batch_size=4,
        start_limit_s=50.0,
        hang_floor_s=30.0,
        platform="CPU-2",
    ),
    System(
        name="cpu_p1",
        device="cpu",
        nodes=1,
        devices_per_node=1,
        micro_batch_size=8,
        start_limit_s=50.0,
        hang_floor_s=30.0,
        platform="CPU-1",
    ),
)

SYSTEMS = {system.name: system for system in _ALL}

_LLAMA31_8B: Mapping[str, Mapping[str, Any]] = {
    "dgxh100_n1": {"tensor_parallel": 1, "shard_gradients": True, "recompute": "selective"},
    "h200_n1": {"tensor_parallel": 1, "shard_gradients": True, "micro_batch_size": 2},
    "b200_n1": {"tensor_parallel": 1, "shard_gradients": True, "micro_batch_size": 2},
    "dgxh100_n8": {"tensor_parallel": 4},
    "h200_n8": {"tensor_parallel": 4},
    "b200_n8": {"tensor_parallel": 4, "pipeline_parallel": 2, "pipeline_chunks": 8},
}
LAYOUTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "llama31_8b": {
        name: {"pipeline_parallel": 1, "micro_batch_size": 1, "recompute": "none", **fields}
        for name, fields in _LLAMA31_8B.items()
    },
}
"""Fields of a system that differ for a benchmark other than GPT-3, found by the same search at its own batch size."""

DEFAULT_SYSTEM = {
    "gpt3_175b": "dgxh100_n64",
    "rehearsal": "cpu_p2",
    "llama31_8b": "dgxh100_n1",
    "rehearsal_llama": "cpu_p2",
}


def system_called(name: str, benchmark: str) -> System:
    """Return the shipped system of that name, laid out for the benchmark, or that of a TOML file. Raises InputError
    where there is none."""
    if name.endswith(SUFFIX):
        return read_system(Path(name))
    return replace(SYSTEMS[choose(name, SYSTEMS, "system")], **LAYOUTS.get(benchmark, {}).get(name, {}))
