"""Published results as workloads of the model of a step."""

from typing import get_args

from benchmark.planning.backtesting.published_results import PublishedResult
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.workload import Feature, Layout, Transformer, Workload

STACK_OF_SOURCE = {
    "megatron-a100": "megatron_2021",
    "mlperf-v3.0": "mlperf_nvidia_3_0",
    "mlperf-v3.1": "mlperf_nvidia_3_1",
    "dgxc-24.11": "nemo_2024",
    "nemo-docs-24.07": "nemo_docs",
    "nemo-docs-24.09": "nemo_docs",
    "nemo-launcher": "nemo_docs",
    "seqsel": "megatron_2022",
    "nemo-megatron-2022": "megatron_2022",
    "llama3": "megatron",
}
"""Where a code's release matters: which of its stacks a source's results are of; for codes that are not described, the
most similar one (Meta's, and NeMo of 2022). Elsewhere the table's name is ours."""

LOW_POWER_W = 500.0
"""Limit of the H100 with slower memory that torchtitan's tables are of."""
SWITCHES: dict[Feature, set[str]] = {
    "tp-overlap": {"tp-overlap", "async-tp"},
    "dp-overlap": {"dp-overlap"},
    "p2p-overlap": {"p2p-overlap"},
    "compile": {"compile"},
    "fp8-parameters": {"fp8-parameters", "fp8-all-gather"},
    "early-stop": {"early-stop"},
    "bf16-reduce": {"bf16-reduce"},
}
"""Of the table, by our names."""


def workload_of_result(result: PublishedResult) -> Workload | None:
    """None for a stack that is not described in stacks.py."""
    stack = STACK_OF_SOURCE.get(result.source.name, result.stack)
    if stack not in STACKS:
        return None
    if stack == "llm_foundry" and result.accelerator.startswith("A100"):
        stack = "llm_foundry_2023"
    accelerator = result.accelerator
    if accelerator == "H100 SXM" and result.power_limit_w == LOW_POWER_W:
        accelerator = "H100 500 W"
    model = Transformer(
        layers=result.model.layers,
        hidden=result.model.hidden,
        heads=result.model.heads,
        seq=result.model.sequence,
        vocab=result.model.vocabulary,
        kv_heads=result.model.kv_heads,
        ffn_hidden=result.model.ffn_hidden,
        gated=result.model.gated,
        tied=result.model.tied,
    )
    layout = Layout(
        devices=result.devices,
        devices_per_node=result.devices_per_node,
        global_batch_size=result.global_batch_size,
        micro_batch_size=result.micro_batch_size,
        tensor_parallel=result.tensor_parallel,
        pipeline_parallel=result.pipeline_parallel,
        pipeline_chunks=result.pipeline_chunks,
        context_parallel=result.context_parallel,
        replicas=result.devices // result.devices_per_node if "hsdp" in result.switches else 1,
        sharding="fsdp" if result.sharding == "fsdp" else "none" if result.sharding == "none" else "zero1",
        recompute=result.recompute,  # type: ignore[arg-type]  # checked by the table's reader
        sequence_parallel=result.sequence_parallel and result.tensor_parallel > 1,
    )
    return Workload(
        model,
        layout,
        "fp8" if result.precision in ("fp8", "mxfp8") else "bf16",
        accelerator,
        stack,
        network_gbit_s=result.network_gbps or None,
        watts=result.power_limit_w,
        without=tuple(feature for feature in get_args(Feature) if _lacks(result, feature)),
    )


def _lacks(result: PublishedResult, feature: Feature) -> bool:
    """Fully sharded parameters travel beside computation by their design; and only of FSDP's precision it is known in
    which one gradients are summed where the table does not say."""
    if feature == "dp-overlap" and result.sharding in ("fsdp", "zero2"):
        return False
    if feature == "bf16-reduce" and result.sharding != "fsdp":
        return False
    return SWITCHES[feature].isdisjoint(result.switches)
