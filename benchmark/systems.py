"""The systems: data only.

By arithmetic, not yet measured: sharded over 512 devices (FSDP), the 175B model's FP32 weights, moments and gradients
take 5.5 GB of each; a gathered block 3.6 GB in BF16, its gradient 3.6 GB more and 7.2 GB in FP32 while it is reduced;
the inputs of 96 blocks, which is what full recomputation keeps, 4.8 GB per sample.
"""

from benchmark.config import System

SYSTEMS = {
    system.name: system
    for system in (
        System(
            name="dgxh100_n64",
            device="cuda",
            nodes=64,
            devices_per_node=8,
            micro_batch_size=1,
            recompute="full",
            platform="DGX-H100-n64",
        ),
        System(
            name="dgxa100_n64",
            device="cuda",
            nodes=64,
            devices_per_node=8,
            micro_batch_size=1,
            recompute="full",
            platform="DGX-A100-n64",
        ),
        System(
            name="cpu_p2",
            device="cpu",
            nodes=1,
            devices_per_node=2,
            micro_batch_size=4,
            keep_unsharded=True,
            platform="CPU-2",
        ),
        System(
            name="cpu_p1",
            device="cpu",
            nodes=1,
            devices_per_node=1,
            micro_batch_size=8,
            keep_unsharded=True,
            platform="CPU-1",
        ),
    )
}

DEFAULT_SYSTEM = {"gpt3_175b": "dgxh100_n64", "rehearsal": "cpu_p2"}
