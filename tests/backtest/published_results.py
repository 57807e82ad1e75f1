"""Published training steps as workloads of the step model: ``published_results.toml``, every row checked.

Figures that are no step time are turned into one by the model's FLOPs, counted in one way for all
(:func:`step_flops`).
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from benchmark.planning.step_model.machine_constants import TABLE as CONSTANTS
from benchmark.planning.step_model.machine_constants import MachineConstants, Rates, read_constants
from benchmark.planning.step_model.stacks import OverlapFeature
from benchmark.planning.step_model.workload import Layout, Workload
from model.flops import part_flops_per_token
from tests.benchmark.planning.step_model.works import decoder

TABLE = Path(__file__).with_name("published_results.toml")
LOW_POWER = Path(__file__).with_name("low_power.toml")
"""Constants of an accelerator that only published results have."""
TOPOLOGY = {
    "micro_batch_size",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "pipeline_chunks",
    "recompute",
}
"""A result that infers one of these has a guessed topology."""


@dataclass(frozen=True)
class PublishedResult:
    """One measured step."""

    id: str
    url: str
    work: Workload
    published_s: float
    """As measured, or by tokens or FLOPs per second."""
    fitted: bool
    """Whether the constants were fitted to it."""
    guessed: bool
    """Whether sizes that the step depends on were inferred, not read."""
    kept_back: bool
    """Whether it was added after the constants were fitted, and used for neither constants nor errors."""


@cache
def backtest_constants() -> MachineConstants:
    """The planner's table, and the accelerator that only published results have."""
    return read_constants(CONSTANTS, LOW_POWER)


def rates_of(work: Workload, constants: MachineConstants | None = None) -> Rates:
    table = backtest_constants() if constants is None else constants
    return table.rates(work.accelerator, work.stack, network_gbit_s=work.network_gbit_s)


def load_published_results(path: Path = TABLE) -> list[PublishedResult]:
    """All results of the table, in its order.

    Raises ValueError or KeyError for a row that lacks a field, whose sizes do not multiply out, or that no device can
    have reached.
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    fitted = set(table["fitted"])
    results = [_result(row, table, fitted) for row in _rows(table)]
    ids = [result.id for result in results]
    if len(ids) != len(set(ids)) or not fitted <= set(ids):
        raise ValueError(f"{path}: an id is there twice, or among the fitted and not among the results")
    return results


def _rows(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for group in table["groups"]:
        common = {key: value for key, value in group.items() if key not in ("columns", "rows")}
        for row in group["rows"]:
            yield common | dict(zip(group["columns"], row, strict=True))


def _result(row: Mapping[str, Any], table: Mapping[str, Any], fitted: set[str]) -> PublishedResult:
    inferred = set(row.get("inferred", []))
    if inferred and not row.get("note"):
        raise ValueError(f"{row['id']}: sizes are inferred and no note says why")
    work = _workload(row, table["models"][row["model"]])
    layout, devices, tokens = work.layout, row["devices"], row["global_batch_size"] * work.model.seq_length
    if layout.data_parallel != row["data_parallel"]:
        raise ValueError(f"{row['id']}: {layout.data_parallel} data-parallel devices follow from the other sizes")
    per_second = {
        "step_s": 1 / row["value"],
        "tokens_per_s_per_device": row["value"] * devices / tokens,
        "tflops_per_device": row["value"] * 1e12 * devices / step_flops(work),
    }[row["kind"]]
    url = table["sources"][row["source"]]["url"]
    return PublishedResult(
        row["id"],
        url,
        work,
        published_s=1 / per_second,
        fitted=row["id"] in fitted,
        guessed=bool(inferred & TOPOLOGY),
        kept_back=row.get("kept_back", False),
    )


def step_flops(work: Workload) -> float:
    """Model FLOPs of a step of all devices, the padding of the vocabulary included."""
    model = work.model
    per_token = part_flops_per_token(model, num_layers=model.num_layers, output_columns=model.padded_vocab_size)
    return work.layout.global_batch_size * model.seq_length * per_token


def _workload(row: Mapping[str, Any], sizes: Mapping[str, Any]) -> Workload:
    tensor = row.get("tensor_parallel", 1)
    model = decoder(
        sizes["layers"],
        sizes["hidden"],
        sizes["heads"],
        row.get("sequence", sizes["sequence"]),
        sizes["vocabulary"],
        kv_heads=sizes.get("kv_heads", 0),
        ffn=sizes.get("ffn_hidden", 0),
        gated=sizes.get("gated", False),
    )
    layout = Layout(
        devices=row["devices"],
        devices_per_node=row["devices_per_node"],
        global_batch_size=row["global_batch_size"],
        micro_batch_size=row["micro_batch_size"],
        tensor_parallel=tensor,
        pipeline_parallel=row.get("pipeline_parallel", 1),
        pipeline_chunks=row.get("pipeline_chunks", 1),
        context_parallel=row.get("context_parallel", 1),
        sharding="fsdp" if row["sharding"] == "fsdp" else "zero1",
        recompute=row["recompute"],
        sequence_parallel=row["sequence_parallel"] and tensor > 1,
    )
    return Workload(
        model,
        layout,
        "fp8" if row["precision"] in ("fp8", "mxfp8") else "bf16",
        "H100 500 W" if row.get("power_limit_w") == 500 else row["accelerator"],
        row["stack"],
        network_gbit_s=row["network_gbps"] or None,
        without=tuple(feature for feature in get_args(OverlapFeature) if not _hides(row, feature)),
    )


def _hides(row: Mapping[str, Any], feature: str) -> bool:
    """Sharded parameters and gradients travel beside computation by their design."""
    if feature == "dp-overlap" and row["sharding"] in ("fsdp", "zero2"):
        return True
    return feature in row["switches"] or (feature == "tp-overlap" and "async-tp" in row["switches"])
